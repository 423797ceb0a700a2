"""Alternative implementations on the same graphs; packages that cannot be imported are listed, not an error."""

import importlib
from collections.abc import Callable

import torch

from joao.core.randomness import temporary_seed, torch_generator
from joao.objectives import NtXent
from repro.benchmarks.workloads import Workload

GEOMETRIC = "torch-geometric, node dropping"
UNCHANGED = "torch-geometric, no augmentation"
PYGCL = "PyGCL, node dropping"
DIG = "DIG, node dropping"
MAKERS = (GEOMETRIC, UNCHANGED, PYGCL, DIG)

# Makes a rival anew, and returns one epoch of it.
Maker = Callable[[], Callable[[], object]]


def rivals_of(workload: Workload, device: torch.device, seed: int) -> tuple[dict[str, Maker], dict[str, str]]:
    """Return how to build each available rival, and why others are not measured."""
    makers: dict[str, Maker] = {}
    missing: dict[str, str] = {}
    for name in MAKERS:
        try:
            packages = importlib.import_module("repro.benchmarks.packages")
            packages.import_package(*{PYGCL: ["GCL.models"], DIG: ["dig.sslgraph.method"]}.get(name, []))
        except Exception as error:  # an old package may fail in any way when it is loaded
            missing[name] = " ".join(f"cannot be imported ({type(error).__name__}: {error}).".split())
            continue
        makers[name] = _maker(name, workload, device, seed)
    return makers, missing


def _maker(name: str, workload: Workload, device: torch.device, seed: int) -> Maker:
    from repro.benchmarks.packages import PyGclTraining, dig_epoch
    from repro.benchmarks.plain_geometric import GeometricGin, PlainTraining, data_list, node_drop

    graphs = data_list(workload.store)

    def make() -> Callable[[], object]:
        with temporary_seed(seed, "weights"):
            model = GeometricGin(workload.store.num_features, workload.width, workload.layers)
        generator = torch_generator(seed, name)
        if name == PYGCL:
            return PyGclTraining(graphs, model, workload.batch_size, device, generator).epoch
        if name == DIG:
            sizes = (workload.store.num_features, workload.width, workload.layers)
            return dig_epoch(graphs, sizes, workload.batch_size, device, generator)
        augment = node_drop if name == GEOMETRIC else None
        return PlainTraining(graphs, augment, model, NtXent(), workload.batch_size, device, generator).epoch

    return make
