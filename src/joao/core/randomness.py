"""One seed, split into named generators."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def derive_seed(seed: int, purpose: str) -> int:
    """Derive a seed for a purpose; adding a purpose does not change the others."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def torch_generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Make a torch generator for a purpose ("weights", "batches", "views", "policy")."""
    return torch.Generator(device).manual_seed(derive_seed(seed, purpose))


def numpy_generator(seed: int, purpose: str) -> np.random.Generator:
    """Make a numpy generator for a purpose ("labels")."""
    return np.random.default_rng(derive_seed(seed, purpose))


def random_rank(group_of_item: Tensor, items_per_group: Tensor, generator: torch.Generator) -> Tensor:
    """Number the items of each group 0, 1, 2, ... in a uniformly random order.

    Args:
        group_of_item: ``(N,)`` ascending group numbers.
        items_per_group: ``(G,)`` sizes of the groups, which sum to N.
        generator: on the device of ``group_of_item``.

    Returns:
        ``(N,)`` ranks. The items with ranks below k are a uniform sample of k items without replacement.
    """
    uniform = torch.rand(group_of_item.numel(), dtype=torch.float64, device=group_of_item.device, generator=generator)
    if uniform.device.type == "cpu":
        # Groups are integers, so one sort suffices.
        order = torch.from_numpy(np.argsort((group_of_item + uniform).numpy()))
    else:
        order = order_within_groups(uniform, group_of_item)
    first_of_group = torch.cumsum(items_per_group, 0) - items_per_group
    position = torch.arange(order.numel(), device=order.device)
    position -= first_of_group.index_select(0, group_of_item)
    return torch.empty_like(order).index_copy_(0, order, position)


def random_choice(
    group_of_item: Tensor, items_per_group: Tensor, chosen_per_group: Tensor, generator: torch.Generator
) -> Tensor:
    """Sample ``chosen_per_group`` ``(G,)`` items of each group uniformly without replacement, as a mask ``(N,)``.

    The other arguments are those of :func:`random_rank`.
    """
    if group_of_item.device.type != "cpu":
        rank = random_rank(group_of_item, items_per_group, generator)
        return rank < chosen_per_group.index_select(0, group_of_item)
    # Compare with the k-th smallest key of the group: numpy's sort takes a third of the time of argsort.
    uniform = torch.rand(group_of_item.numel(), dtype=torch.float64, generator=generator)
    key = (group_of_item + uniform).numpy()
    ascending = np.append(np.sort(key), np.inf)
    bound = ascending[(torch.cumsum(items_per_group, 0) - items_per_group + chosen_per_group).numpy()]
    chosen = key < np.repeat(bound, items_per_group.numpy())
    if np.count_nonzero(chosen) != chosen_per_group.sum():  # equal keys, about once in 10^12
        return random_choice(group_of_item, items_per_group, chosen_per_group, generator)
    return torch.from_numpy(chosen)


def order_within_groups(values: Tensor, group_of_item: Tensor) -> Tensor:
    """Order ``(N,)`` that sorts items, given by ascending group, by value inside each group."""
    if values.device.type != "cpu":
        order = torch.argsort(values)
        return order[torch.argsort(group_of_item[order], stable=True)]
    # numpy sorts in a third of torch's time, and 16-bit integers in a tenth.
    by_value = np.argsort(values.numpy())
    groups = group_of_item.numpy()
    if groups.size and groups[-1] < 2**16:
        groups = groups.astype(np.uint16)
    return torch.from_numpy(by_value[np.argsort(groups[by_value], kind="stable")])


def random_integers(below: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a uniform integer from 0 to ``below - 1`` for each entry of ``below`` ``(n,)``."""
    uniform = torch.rand(below.numel(), dtype=torch.float64, device=below.device, generator=generator)
    return (uniform * below).long()


def random_pairs(first: Tensor, sizes: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a uniform ordered pair of different integers from ``first`` to ``first + size - 1`` for each entry."""
    one = random_integers(sizes, generator)
    other = random_integers(sizes - 1, generator)
    other += other >= one  # skip ``one`` itself
    return first + one, first + other


def splitmix64(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Map 64-bit numbers to others one to one, so that every bit of the result depends on all bits; 0 stays 0."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


@contextmanager
def temporary_seed(seed: int, purpose: str, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch's global generators, of the CPU and ``device``, for a block of code, and restore them afterwards.

    For code that draws from the global generators, such as ``nn.Linear`` or dropout.
    """
    gpus = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(derive_seed(seed, purpose))  # torch.manual_seed would seed all GPUs
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(derive_seed(seed, purpose))
        yield


def global_rng_state(device: torch.device | str) -> list[Tensor]:
    """States of torch's global generators: of the CPU and, if it is a GPU, of ``device``."""
    gpu = [torch.cuda.get_rng_state(device)] if torch.device(device).type == "cuda" else []
    return [torch.get_rng_state(), *gpu]


def set_global_rng_state(states: Sequence[Tensor], device: torch.device | str) -> None:
    """Restore the states of :func:`global_rng_state`, inside :func:`temporary_seed`."""
    torch.set_rng_state(states[0])
    if torch.device(device).type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
