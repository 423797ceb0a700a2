"""An optional package that is missing takes its own feature along, which says so in one line, and nothing else."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import joao
from repro.cli.main import app as repro_app
from tests.cli.conftest import assert_refused, run_command, run_joao
from tests.messages import refused

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Feature:
    """What needs a package.

    Attributes:
        told: what each of the following mentions.
        calls: in Python, with a fitted model and an empty folder.
        commands: of ``joao`` or ``repro``, where RUN is the folder of a run, SMILES a table of molecules
            and TABLE one in Parquet.
        others: commands next to the feature that need no package.
    """

    told: tuple[str, ...] = ()
    calls: tuple[Callable[[joao.JOAO, Path], object], ...] = ()
    commands: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def baseline(name):
    return lambda model, folder: (
        importlib.import_module("repro.baselines").BASELINES[name]().fit_transform(joao.read("MUTAG"))
    )


def write(path):
    path.write_bytes(b"PAR1")
    return path


def scaffolds(model, folder):
    return importlib.import_module("joao.evaluation.splits").scaffolds(["CCO"])


def fingerprints(model, folder):
    return importlib.import_module("joao.baselines.forests").molecule_columns(["CCO"], ["ecfp"])


def logged(model, folder):
    from joao.runs.pretraining import pretrain

    return pretrain(model.trained_.recipe, joao.read("MUTAG"), folder=folder / "logged", loggers=["tensorboard"])


FEATURES = {
    "gensim": Feature(
        ("gensim", "pip install gensim"),
        tuple(map(baseline, ("dgk", "node2vec", "sub2vec", "graph2vec"))),
        ("compare MUTAG --methods graph2vec", "repro unsupervised --only MUTAG --methods wl,dgk --out table"),
    ),
    "pandas": Feature(("pandas", "pip install pandas"), (lambda model, folder: model.policy_.to_pandas(),)),
    "pyarrow": Feature(
        ("pyarrow", "pip install pyarrow"),
        (lambda model, folder: joao.read(write(folder / "molecules.parquet")),),
        ("embed RUN MUTAG --out parts", "embed RUN MUTAG --out embeddings.parquet", "data TABLE"),
        ("embed RUN MUTAG --out embeddings.npz",),
    ),
    "ray": Feature(
        ("ray", "pip install 'joao[ray]'"),
        (lambda model, folder: joao.embed("MUTAG", "RUN", engine="ray"),),
        (
            "embed RUN MUTAG --out parts --engine ray",
            "pack SMILES --out packed --engine ray",
            "repro unsupervised --only MUTAG --methods wl --out table --engine ray",
        ),
        ("pack SMILES --out packed --engine local",),
    ),
    "rdkit": Feature(
        ("rdkit", "pip install rdkit"),
        (
            lambda model, folder: joao.read(["CCO"]),
            lambda model, folder: model.transform(["CCO"]),
            scaffolds,
            fingerprints,
        ),
        ("data SMILES", "pretrain SMILES --out new", "embed RUN SMILES --out e.csv", "pack SMILES --out packed"),
        ("embed RUN MUTAG --out embeddings.csv",),
    ),
    "tensorboard": Feature(
        ("tensorboard", "pip install tensorboard", "csv"),
        (logged,),
        ("pretrain MUTAG --out new --log tensorboard",),
        ("pretrain MUTAG --set training.epochs=1 --out with-csv --log csv",),
    ),
    "triton": Feature(others=("pretrain MUTAG --set training.epochs=1 --out padded --fast --device cpu",)),
    "umap": Feature(
        ("umap-learn", "pip install umap-learn", "tsne"),
        (),
        ("report RUN --out report.html --map umap",),
        ("report RUN --out report.html --map pca",),
    ),
    "usearch": Feature(others=("neighbors RUN MUTAG --out hits.csv",)),
}


def check(missing, folder):
    """All that is asked of a process without a package; it runs in ``folder``."""
    with pytest.raises(ImportError):
        importlib.import_module(missing)
    assert run_joao("--help").code == 0
    graphs = joao.read("MUTAG")
    model = joao.JOAO(epochs=1, device="cpu").fit(graphs)
    assert model.transform(graphs).shape == (188, 303)
    model.save("RUN")
    Path("SMILES.smi").write_text("CCO\n", encoding="utf-8")
    feature = FEATURES[missing]
    for call in feature.calls:
        with refused(*feature.told):
            call(model, folder)
    for command in feature.commands:
        assert_refused(outcome_of(command), *feature.told)
    for command in feature.others:
        outcome = outcome_of(command)
        assert outcome.code == 0, (command, outcome.err)


def check_commands(missing, folder):
    """The commands that do not need the package, one after the other."""
    for command in (
        "pretrain MUTAG --set training.epochs=1 --out RUN",
        "embed RUN MUTAG --out embeddings.npz",
        "evaluate RUN",
        "finetune RUN MUTAG --epochs 1 --out finetuned",
        "predict finetuned MUTAG --out predictions.csv",
        "export RUN --out model.safetensors",
        "report RUN --out report.html --map tsne",
        "pack MUTAG --out packed.safetensors",
        "compare packed.safetensors --methods wl --partitions 1 --folds 2",
    ):
        outcome = outcome_of(command)
        assert outcome.code == 0, (command, outcome.err)


def outcome_of(command):
    if "TABLE" in command:
        write(Path("table.parquet"))
    words = [{"SMILES": "SMILES.smi", "TABLE": "table.parquet"}.get(word, word) for word in command.split()]
    return run_command(repro_app, "repro", words[1:]) if words[0] == "repro" else run_joao(*words)


# Every finder of modules as it is, but for one package, which it does not find.
HOOK = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *more):
        return None if name.split(".")[0] == "{missing}" else self.finder.find_spec(name, *more)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def run_without(missing, check, folder):
    """Runs a function of this module in a process to which, and to whose children, a package is missing."""
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK.format(missing=missing), encoding="utf-8")
    (folder / "work").mkdir()
    places = [str(hook), str(ROOT), *filter(None, sys.path)]
    program = f"import pathlib, tests.test_missing_packages as m; m.{check.__name__}({missing!r}, pathlib.Path('.'))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOAO_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder / "work",
        env={**environment, "PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("missing", FEATURES)
def test_only_its_own_feature_is_missed_and_says_so(missing, tmp_path):
    run_without(missing, check, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("missing", FEATURES)
def test_every_command_works_that_does_not_need_it(missing, tmp_path):
    run_without(missing, check_commands, tmp_path)


def test_every_optional_package_of_the_program_is_among_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    packages = {
        re.match(r"[\w-]+", each)[0] for name in extras.keys() - {"dev", "docs", "fuzz"} for each in extras[name]
    }
    assert packages <= FEATURES.keys()
