"""Oracle: torch's own counter of operations, and the parameters of the model."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from joao.config.builder import build_method
from joao.training.steps import View
from repro.benchmarks.floor import Floor, scattered
from repro.benchmarks.side_by_side import num_weights, work_of_step
from repro.benchmarks.steps import recipe_of
from repro.benchmarks.workloads import Workload


@pytest.fixture
def workload(mutag):
    return Workload("MUTAG", mutag, "bundled", width=16, layers=3, batch_size=8)


def test_matrix_products_are_counted_as_in_torch(workload):
    store = workload.store
    method = scattered(build_method(recipe_of(workload, "graphcl", 0), store))
    views = [View(store.batch(torch.arange(start, start + 8)), 0) for start in (0, 8)]
    floor = Floor(method, 0.01, torch.device("cpu"))
    with FlopCounterMode(display=False) as counter:
        floor.step(*views)
    # torch does not count sums over neighbours: E rows of d, forward and, but for the first layer, backward
    edges = sum(view.batch.num_edges for view in views)
    sums = edges * (store.num_features + 2 * 16 * 2)
    work = work_of_step([tuple(views)], store.num_features, 16, 3)
    assert work.flop == counter.get_total_flops() + sums


def test_bytes_match_a_hand_computation(make_batch):
    batch = make_batch([(2, [(0, 1)]), (1, [])])  # 3 nodes, 2 directed edges, 3 columns
    pair = (View(batch, 0), View(batch, 0))
    layer = 8 * 2 + 4 * 3 * (3 * 3 + 7 * 5)
    assert work_of_step([pair, pair], 3, 5, 1).bytes == 2 * 3 * layer + 32 * num_weights(3, 5, 1)


@pytest.mark.parametrize(("width", "layers"), [(4, 1), (16, 3)])
def test_number_of_weights_matches_the_model(mutag, width, layers):
    workload = Workload("MUTAG", mutag, "bundled", width, layers, batch_size=8)
    method = build_method(recipe_of(workload, "joao", 0), mutag)
    parameters = [*method.encoder.parameters(), *method.heads.parameters()]
    assert num_weights(mutag.num_features, width, layers) == sum(each.numel() for each in parameters)
