"""The examples run, and do what they say."""

import importlib.util
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from joao.policies import POLICIES

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_loop.py"


NOTEBOOKS = sorted(EXAMPLE.parent.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch, few_epochs, few_folds, one_c, capsys):
    if path.stem == "molecules":
        pytest.importorskip("rdkit")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    plt.close("all")
    assert re.search(r"\d", capsys.readouterr().out)  # it prints what it found


def test_notebooks_are_stored_without_output():
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        assert notebook["nbformat"] == 4
        assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert code
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.fixture
def own_loop():
    spec = importlib.util.spec_from_file_location("own_loop", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def projected(b):
    """The nearest law to ``b``, its shift found as a root."""
    shift = brentq(lambda mu: np.maximum(b - mu, 0).sum() - 1, b.min() - 1, b.max(), xtol=1e-14)
    return np.maximum(b - shift, 0)


def test_the_policy_of_ones_own_loop_goes_where_the_losses_say(own_loop, monkeypatch):
    seen, drawn = [], []
    update, sample = own_loop.MinMax.update, own_loop.MinMax.sample
    monkeypatch.setattr(own_loop.MinMax, "update", lambda self, losses: (seen.append(losses), update(self, losses)))
    monkeypatch.setattr(own_loop.MinMax, "sample", lambda self, **how: drawn.append(sample(self, **how)) or drawn[-1])
    encoder, policy = own_loop.train(own_loop.made_graphs(40), epochs=3)
    size = len(own_loop.POOL)
    expected = uniform = np.full((size, size), 1 / size**2)
    for losses in seen:
        expected = projected(expected + losses.double().numpy() - 0.1 * (expected - uniform))
    np.testing.assert_allclose(policy.probabilities.numpy(), expected, atol=1e-9)
    assert np.abs(expected - uniform).max() > 0.01
    assert len(seen) == 3
    assert len(drawn) == 3 * 2  # epochs of two batches
    assert {name for pair in drawn for name in pair} <= set(own_loop.POOL)
    # The losses are those of the encoder: after training, a graph beside itself is recognised better than by chance.
    at_chance = np.log(8)  # of the last batch's graphs
    identity = list(own_loop.POOL).index("identity")
    assert seen[-1][identity, identity] < at_chance
    assert all(torch.isfinite(each).all() for each in encoder.state_dict().values())


def test_the_lines_of_the_page_run(capsys):
    page = (EXAMPLE.parent.parent / "docs/custom-training-loop.md").read_text(encoding="utf-8")
    names = {}
    exec(compile(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), "custom-training-loop.md", "exec"), names)
    learned = names["policy"].probabilities
    assert learned.shape == (3, 3)
    assert learned.sum().item() == pytest.approx(1)
    assert learned[0, 0] < 1 / 9  # two views that are the same are the easiest pair
    assert capsys.readouterr().out.startswith("tensor(")


def test_the_page_names_every_policy():
    page = (EXAMPLE.parent.parent / "docs/custom-training-loop.md").read_text(encoding="utf-8")
    for policy in POLICIES.values():
        assert f"`{policy.__name__}(" in page
