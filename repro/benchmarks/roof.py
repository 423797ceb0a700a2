"""Peak speed of the machine for the operations of a step."""

import statistics

import torch

from repro.benchmarks.timing import always, time_in_turns


def measure_roof(device: torch.device, repeats: int) -> dict[str, float]:
    """Measure GFLOP/s of a product of float32 matrices, with the current precision.

    And GB/s, read and written, of a copy that no cache holds.
    """
    gpu = device.type == "cuda"
    size, length = (8192, 2**28) if gpu else (1024, 2**24)
    square, long = torch.ones(size, size, device=device), torch.ones(length, device=device)
    out, copy = torch.empty_like(square), torch.empty_like(long)
    tasks = {"product": always(lambda: torch.mm(square, square, out=out)), "copy": always(lambda: copy.copy_(long))}
    seconds = time_in_turns(tasks, repeats, device)
    return {
        "GFLOP/s": 2 * size**3 / statistics.median(seconds["product"].wall) / 1e9,
        "GB/s": 8 * length / statistics.median(seconds["copy"].wall) / 1e9,
    }
