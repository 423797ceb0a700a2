"""The page as text: self-contained, small and quickly rendered."""

import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from joao.data.synthetic import random_graphs
from joao.report.rendering import json_for_script, render
from joao.report.reported_run import ShownGraphs, embedding_map
from joao.training.metrics import EpochMetrics


class Parts(HTMLParser):
    """What a page is made of."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_self_contained(scored_run, open_run):
    run = open_run(scored_run)
    text = render([run])
    parts = Parts(text)
    assert not {"img", "iframe", "object", "embed", "audio", "video"} & set(parts.tags)
    links = [value for name, value in parts.attributes if name in ("src", "href", "srcset", "action", "data")]
    assert sorted(links) == ["#main", "data:,"]
    (policy,) = (value for name, value in parts.attributes if name == "content" and "default-src" in value)
    inside = "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    assert policy == f"default-src 'none'; {inside}"
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text)
    said = " ".join(" ".join(parts.texts).split())
    score = json.loads((scored_run / "evaluation.json").read_text())
    for key in ("chance", "untrained", "untrained_initial", "histogram", "wl", "ldp", "run"):
        value = score[key] if key == "chance" else score[key]["mean"]
        assert f"{100 * value:.2f}" in said
    assert "87.35" in said  # the paper's
    assert run.run.info.fingerprint in said
    assert " ".join(run.run.recipe.toml().split()) in said
    assert all(version in said for version in run.run.info.versions.values())


def test_scripts_do_not_create_markup_from_text():
    from importlib.resources import files

    folder = files("joao.report")
    scripts = [file for file in folder.iterdir() if file.name.endswith(".js")]
    assert len(scripts) == 7
    for file in scripts:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", file.read_text())


def test_data_cannot_end_the_script_element():
    value = {"a": "</script><!-- <script> & ]]>", "b": [1, None, "é"]}
    text = json_for_script(value)
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


def test_two_runs_are_compared(scored_run, open_run, new_run, score, mutag_data):
    other = new_run(mutag_data, "other", method="joaov2")
    score(other, mutag_data)
    text = render([open_run(scored_run), open_run(other)])
    said = " ".join(" ".join(Parts(text).texts).split())
    assert "95 %" in said
    first, second = (json.loads((run / "evaluation.json").read_text())["run"]["mean"] for run in (scored_run, other))
    assert f"{100 * (first - second):+.2f}" in said
    assert said.index("Differences") < said.index("Accuracy on MUTAG") < said.index("5 epochs without labels")
    assert [value for name, value in Parts(text).attributes if (name, value) == ("class", "bars")] == ["bars"]  # one
    assert Parts(text).texts.count("WL (subtree kernel)") == 1  # the same for both runs
    assert len(json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["sets"]) == 1


@pytest.mark.parametrize("names", [(), tuple(f"molecule-{number:08d}" for number in range(4000))], ids=["", "named"])
def test_large_pages_stay_below_a_megabyte(scored_run, open_run, numbers, names):
    made = random_graphs(4000, mean_nodes=30, mean_degree=2.2, num_classes=0)
    dataset = replace(made, classes=np.arange(4000) % 2, class_names=("a", "b"), graph_names=names)
    size = 13
    tables = numbers.dirichlet(np.ones(size**2), 100).reshape(100, size, size).tolist()
    metrics = [
        EpochMetrics(i + 1, 2.5 / (i + 1), tables[i], tables[i], [[9] * size] * size, 1.0, 1.0) for i in range(100)
    ]
    pool = tuple(f"{'abcde'[i // 3]}(strength=0.{i % 3})" for i in range(size))
    run = open_run(scored_run)
    info = replace(run.run.info, pool=pool, num_graphs=4000, own={"augmentations": "made up"})
    run = replace(
        run,
        run=replace(run.run, info=info),
        metrics=metrics,
        graphs=ShownGraphs("made", dataset, np.arange(4000), 4000, ("f",), of_run=True),
    )
    started = time.perf_counter()
    found = embedding_map(numbers.standard_normal((4000, 96)).astype(np.float32), "pca")
    text = render([replace(run, map=found)])
    assert time.perf_counter() - started < 20  # about 1 s where nothing else runs
    assert 500_000 < len(text.encode()) < 1_000_000
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    (found,) = data["sets"].values()
    assert found["drawn"] > 3000
    assert len(data["runs"][0]["map"]["x"]) == 4000
    assert len(data["runs"][0]["tables"]["epochs"]) == 100
