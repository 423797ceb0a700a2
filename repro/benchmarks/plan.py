"""The plan of a benchmark, checked before anything is read or timed."""

import os
from dataclasses import dataclass

from joao.core.errors import UserError, suggest

NAMES = ("NCI1", "DD", "REDDIT-BINARY", "COLLAB", "molecules")
DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("32-true", "tf32", "bf16-mixed")


@dataclass(frozen=True)
class Plan:
    """One run of the benchmark.

    Args:
        workloads: of :data:`NAMES`; none means all of them.
        devices: of :data:`DEVICES`.
        threads: numbers of torch threads; the CPU is measured with each.
        repeats: measurements of each figure, after one that warms up.
        width, layers, batch_size: of the model and its training; None means what is usual for the workload.
        precision: of training on a GPU; a CPU is measured with 32 bits. ``bf16-mixed`` measures neither floors nor
            rivals, which have no mixed precision.
        rivals: whether what a user would pick instead is measured too.
        scaling: whether growth with the number, the size and the density of graphs and with the batch is measured.
        reading: whether the time to read large data sets is measured too.
        svm: whether the SVM protocol is measured too, on embeddings of NCI1 (quick: MUTAG).
        quick: small made data and few repeats: a first look in seconds, whose figures say little.
        data_root: folder where data sets are looked up.
        seed: of everything random.
    """

    workloads: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    threads: tuple[int, ...] = (1,)
    repeats: int = 7
    width: int | None = None
    layers: int | None = None
    batch_size: int | None = None
    precision: str = "32-true"
    rivals: bool = True
    scaling: bool = False
    svm: bool = False
    reading: bool = False
    quick: bool = False
    data_root: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.workloads:
            if name not in NAMES:
                raise UserError(f"bench: unknown workload '{name}'. {suggest(name, NAMES)}")
        for device in self.devices:
            if device not in DEVICES:
                raise UserError(f"bench: device must be one of {', '.join(DEVICES)}, got '{device}'.")
        if self.precision not in PRECISIONS:
            raise UserError(f"bench: precision must be one of {', '.join(PRECISIONS)}, got '{self.precision}'.")
        if self.precision != "32-true" and set(self.devices) == {"cpu"}:
            raise UserError(f"bench: precision {self.precision} needs a GPU; a CPU is measured in 32-true.")
        least = {"repeats": 1, "width": 1, "layers": 1, "batch_size": 2, "seed": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise UserError(f"bench: {name} must be at least {bound}, got {value}.")
        if not self.devices or not self.threads or min(self.threads) < 1:
            raise UserError("bench: needs a device, and one thread or more.")

    @property
    def names(self) -> tuple[str, ...]:
        """The workloads to measure, each once."""
        return tuple(dict.fromkeys(self.workloads)) or NAMES


def threads_of(text: str) -> tuple[int, ...]:
    """Parse numbers of threads, as given by the user.

    >>> threads_of("1,4")
    (1, 4)
    """
    return tuple(dict.fromkeys(_number(word.strip()) for word in text.split(",")))


def _number(word: str) -> int:
    if word == "all":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not word.isdecimal() or not 1 <= int(word) <= 1024:
        raise UserError(f"bench: threads must be 'all' or a number from 1 to 1024, got '{word}'.")
    return int(word)
