"""Runs to report on."""

import json

import numpy as np
import pytest

from joao.config.recipe import make_recipe
from joao.data.names import BUNDLED
from joao.data.sources import read
from joao.evaluation import svm
from joao.report.reported_run import open_reported_run
from joao.runs.pretraining import pretrain
from joao.runs.scoring import evaluate
from joao.runs.trained import load_run


def trained_run(folder, dataset, **table):
    """A short run of these graphs."""
    training = {"epochs": 3, "batch_size": 64, **table.pop("training", {})}
    recipe = make_recipe({"data": "MUTAG", "training": training, **table}, kind=dataset.kind)
    pretrain(recipe, dataset, folder=folder, device="cpu")
    return folder


def add_score(folder, dataset, name="evaluation.json", **options):
    """Score a run on two partitions into three folds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svm, "C_GRID", (1.0,))
        record = evaluate(load_run(folder), dataset, partitions=range(2), num_folds=3, device="cpu", **options)
    (folder / name).write_text(json.dumps(record))
    return record


@pytest.fixture(scope="session")
def mutag_data():
    return read(BUNDLED / "MUTAG.zip")


@pytest.fixture(scope="session")
def scored_run(tmp_path_factory, mutag_data):
    """The folder of a scored run of MUTAG, five epochs."""
    folder = trained_run(tmp_path_factory.mktemp("runs") / "mutag", mutag_data, training={"epochs": 5})
    add_score(folder, mutag_data)
    return folder


@pytest.fixture(scope="session")
def open_run(mutag_data):
    """Open a run on MUTAG or on other graphs."""

    def opened(folder, dataset=None, most_graphs=5000, name=None):
        return open_reported_run(
            folder, name or folder.name, lambda source, columns: dataset or mutag_data, most_graphs
        )

    return opened


@pytest.fixture
def new_run(tmp_path):
    return lambda dataset, name="run", **table: trained_run(tmp_path / name, dataset, **table)


@pytest.fixture
def score():
    return add_score


@pytest.fixture
def numbers():
    return np.random.default_rng(0)
