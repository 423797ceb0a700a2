"""A small pre-training, put together from parts by name."""

import multiprocessing
import multiprocessing.forkserver

import pytest

from joao.augmentations import AUGMENTATIONS
from joao.augmentations.base import PaddedAugmentation
from joao.config.builder import Method
from joao.config.recipe import Schedule
from joao.core.randomness import temporary_seed
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import Gin
from joao.heads import HEADS
from joao.objectives import NtXent
from joao.policies import MinMax
from joao.training.pretrain import Pretraining


@pytest.fixture(scope="module")
def quick_start():
    """Workers are forked from a process that has imported everything once; test_launch.py starts them as users do."""
    context, get_context = multiprocessing.get_context("forkserver"), multiprocessing.get_context
    context.set_forkserver_preload(["joao.runs.pretraining", "lightning_fabric"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda kind: context if kind == "spawn" else get_context(kind))
        yield
    multiprocessing.forkserver._forkserver._stop()


@pytest.fixture
def store():
    dataset = random_graphs(21, 8, 2.5, seed=3, num_edge_attributes=1)
    return make_store(dataset, Features.from_dataset(dataset))


@pytest.fixture
def pool():
    return {name: kind(0.3) for name, kind in AUGMENTATIONS.items() if issubclass(kind, PaddedAugmentation)}


@pytest.fixture
def make_method(store, pool):
    def make(heads="shared_head", policy=MinMax, pool=pool, seed=0, objective=NtXent(), **options) -> Method:  # noqa: B008
        with temporary_seed(seed, "weights"):
            encoder = Gin(store.num_features, width=4, layers=2)
            return Method(
                augmentations=pool,
                encoder=encoder,
                heads=HEADS[heads](encoder.num_dimensions, len(pool)),
                objective=objective,
                policy=policy(list(pool), **options),
            )

    return make


@pytest.fixture
def make_training(store, make_method):
    def make(method=None, fabric=None, store=store, fast=None, **schedule) -> Pretraining:
        settings = {"epochs": 3, "batch_size": 6, "learning_rate": 0.01, **schedule}
        return Pretraining(store, method or make_method(), Schedule(**settings), fabric, fast)

    return make
