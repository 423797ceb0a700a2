"""Files of odd shapes, odd words and odd options end in a line, never in a traceback."""

from __future__ import annotations

import json
import os
import random
import shutil

import pytest
import torch

import joao
from joao.core.errors import UserError
from repro.proteins import read_ppi
from repro.record_files import RECORDS
from tests.faults.conftest import graph_lines
from tests.faults.harness import assert_one_line, assert_refused_or_read, begin, call, end, run, run_each
from tests.repro.protein_folders import ppi_tensors, write_ppi

DIGITS = "9" * 5000  # more than Python makes a number of
ODD = [None, True, -1, 10**30, 1.5, "text", "\ud800", [], {}, [[]], [None], {"a": None}]


def places_of(value, path=()):
    """Every place in nested lists and dictionaries, of lists the first entry alone."""
    yield path
    inside = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, each in inside:
        yield from places_of(each, (*path, key))


def changed(value, path, new):
    """A copy of ``value`` with ``new`` at ``path``; without what is there, where ``new`` is an ellipsis."""
    if not path:
        return {} if new is ... else new
    copied = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is ...:
        del copied[path[0]]
    else:
        copied[path[0]] = changed(copied[path[0]], path[1:], new)
    return copied


def assert_all_told(path, commands, tmp_path, program="joao", text=None, most=60):
    """Every command ends well or in a line, whatever stands at any place of a file of JSON.

    Of all pairs of a place and an odd value, ``most`` are tried, always the same.
    """
    value = json.loads(text or path.read_text())
    cases, described = [], []
    pairs = [(place, new) for place in places_of(value) for new in (*ODD, ...)]
    for place, new in random.Random(0).sample(pairs, min(most, len(pairs))):
        content = json.dumps(changed(value, place, new))
        for arguments in commands:
            cases.append((lambda content=content: path.write_text(content), arguments))
            described.append((place, new, arguments[0]))
    ends = run_each(cases, program=program, folder=tmp_path)
    faults = [
        (*what, ended.code, ended.err.strip().rsplit("\n", 1)[-1][:100])
        for what, ended in zip(described, ends, strict=True)
        if ended.code not in (0, 2) or (ended.code == 2 and len(ended.complaints) != 1)
    ]
    assert not faults, f"{len(faults)} of {len(ends)}, such as {faults[:8]}"


@pytest.mark.slow
def test_the_index_of_a_store_may_have_any_types(store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    commands = [("data", "store"), ("data", "store", "--check")]
    assert_all_told(tmp_path / "store" / "index.json", commands, tmp_path)


@pytest.mark.slow
def test_finetune_json_may_have_any_shape(tuned, graphs, tmp_path):
    shutil.copytree(tuned, tmp_path / "tuned")
    commands = [("predict", "tuned", graphs, "--out", "/dev/null/out.csv"), ("report", "tuned", "--out", "out.html")]
    assert_all_told(tmp_path / "tuned" / "finetune.json", commands, tmp_path)


@pytest.mark.slow
def test_finetune_json_of_an_exported_run_may_have_any_shape(tuned, tmp_path):
    shutil.copytree(tuned, tmp_path / "tuned")
    path = tmp_path / "tuned" / "finetune.json"
    value = json.loads(path.read_text())
    cases = []
    pairs = [(place, new) for place in places_of(value) for new in ODD]
    for place, new in random.Random(0).sample(pairs, 60):
        content = json.dumps(changed(value, place, new))
        out = tmp_path / f"{len(cases)}.safetensors"
        cases.append((lambda content=content: path.write_text(content), ("export", "tuned", "--out", out)))
    ends = run_each(cases, folder=tmp_path)
    faults = [ended.err.strip().rsplit("\n", 1)[-1][:100] for ended in ends if ended.code not in (0, 2)]
    assert not faults, f"{len(faults)} of {len(ends)}, such as {faults[:8]}"


@pytest.mark.slow
def test_run_json_may_have_any_shape(trained, graphs, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    commands = [("embed", "run", graphs, "--out", "/dev/null/out.csv"), ("report", "run", "--out", "out.html")]
    assert_all_told(tmp_path / "run" / "run.json", commands, tmp_path)


@pytest.fixture(scope="session")
def evaluated(trained, graphs, tmp_path_factory):
    """The text of the record of a score."""
    path = tmp_path_factory.mktemp("evaluated") / "evaluation.json"
    ended = run("evaluate", trained, graphs, "--out", path, "--folds", 2, "--jobs", 1, deadline=120)
    assert ended.code == 0, ended.err
    return path.read_text()


@pytest.mark.slow
def test_evaluation_json_may_have_any_shape(evaluated, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    assert_all_told(
        tmp_path / "run" / "evaluation.json", [("report", "run", "--out", "out.html")], tmp_path, text=evaluated
    )


@pytest.mark.slow
def test_two_scores_of_odd_shapes_are_compared_or_told(evaluated, trained, tmp_path):
    """Differences between runs are made of numbers that a single run does not look at."""
    for name in ("one", "other"):
        shutil.copytree(trained, tmp_path / name)
        (tmp_path / name / "evaluation.json").write_text(evaluated)
    record = json.loads(evaluated)
    cases, path = [], tmp_path / "one" / "evaluation.json"
    for place in [("run", "partitions", 0, "accuracies"), ("run", "partitions"), ("run", "partitions", 0, "fold_hash")]:
        for new in (*ODD, [0.5], [0.5, "a"], [1e400, 0.5]):
            content = json.dumps(changed(record, place, new))
            cases.append((lambda content=content: path.write_text(content), ("report", "one", "other")))
    for ended in run_each(cases, folder=tmp_path):
        assert_refused_or_read(ended)


@pytest.mark.slow
def test_a_record_of_a_comparison_may_have_any_shape(graphs, tmp_path):
    path = tmp_path / "record.json"

    def compare():
        joao.compare(graphs, ["histogram"], partitions=1, folds=2, out=path, device="cpu")

    assert call(compare, deadline=60).code == 0
    record = json.loads(path.read_text())
    method = next(iter(record["methods"]))
    places = [(key,) for key in ("protocol", "methods", "rows", "verdict", "compared", "data")]
    places += [("methods", method), *(("methods", method, key) for key in ("seeds", "settings", "kind"))]
    places += [("methods", method, "seeds", "0"), ("methods", method, "seeds", "0", "accuracies")]
    faults = []
    for number, place in enumerate(places):
        for new in (ODD[number % len(ODD)], ODD[(number + 5) % len(ODD)]):
            path.write_text(json.dumps(changed(record, place, new)))
            ended = call(compare, deadline=60)
            if ended.code not in (0, 2):
                faults.append((place, new, ended.err.strip().rsplit("\n", 1)[-1][:100]))
    assert not faults, f"{len(faults)}, such as {faults[:8]}"


def _with_metadata(content, **more):
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] |= more
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    return len(packed).to_bytes(8, "little") + packed + content[8 + size :]


def test_a_format_number_of_packed_data_may_be_anything(graphs, tmp_path):
    assert run("pack", graphs, "--out", "packed.safetensors").code == 0
    content = (tmp_path / "packed.safetensors").read_bytes()
    for number in (DIGITS, "\u0661", "1_0", "-1", "1e3", "", " 2"):
        (tmp_path / "odd.safetensors").write_bytes(_with_metadata(content, **{"joao.data": number}))
        assert_one_line(run("data", "odd.safetensors"))


@pytest.mark.parametrize("name", ["run.json", "finetune.json"])
def test_a_format_number_of_a_run_may_have_any_length(name, tuned, graphs, tmp_path):
    shutil.copytree(tuned, tmp_path / "tuned")
    path = tmp_path / "tuned" / name
    path.write_text(path.read_text().replace('"format": 1', f'"format": {DIGITS}'))
    assert_one_line(run("predict", "tuned", graphs, "--out", "out.csv"))
    assert_one_line(run("report", "tuned", "--out", "out.html"))


def test_class_names_of_a_store_may_be_long_numbers(tmp_path):
    lines = [json.dumps({"edges": [[0, 1]], "num_nodes": 2, "label": DIGITS if n % 2 else "1"}) for n in range(8)]
    (tmp_path / "graphs.jsonl").write_text("\n".join(lines) + "\n")
    assert run("pack", "graphs.jsonl", "--out", "store.joao", "--shard-graphs", 3).code == 0
    assert_refused_or_read(run("data", "store.joao", "--check"))

    def read():
        assert len(joao.read("store.joao").whole()) == 8

    assert_refused_or_read(call(read))


ODD_TENSORS = {
    "complex": lambda t: t.to(torch.complex64),
    "bfloat16": lambda t: t.to(torch.bfloat16),
    "bool": lambda t: t.to(torch.bool),
    "float": lambda t: t.to(torch.float32) + 0.5,
    "nan": lambda t: t.to(torch.float32) * torch.nan,
    "with gradient": lambda t: t.to(torch.float32).requires_grad_(),
    "sparse": lambda t: t.to_sparse(),
    "quantised": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8),
    "scalar": lambda t: torch.tensor(1),
    "three axes": lambda t: t[None, None],
    "empty": lambda t: t[:0],
    "conjugate": lambda t: t.to(torch.complex64).conj(),
    "meta": lambda t: t.to("meta"),
    "large": lambda t: torch.full_like(t, 2**62) if t.dtype == torch.int64 else t * 1e38,
}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("kind", ODD_TENSORS)
def test_tensors_of_networks_may_be_of_any_type(kind, tmp_path):
    values, slices = ppi_tensors()
    values["go_target_downstream"] = torch.tensor([0, 1, 1])
    faults = []
    for place in (*(("values", name) for name in values), *(("slices", name) for name in slices)):
        new_values, new_slices = dict(values), dict(slices)
        which = new_values if place[0] == "values" else new_slices
        try:
            which[place[1]] = ODD_TENSORS[kind](which[place[1]])
            folder = write_ppi(tmp_path / "-".join(place), new_values, new_slices)
        except (RuntimeError, NotImplementedError, TypeError):  # torch itself does not make or save it
            continue
        try:
            read_ppi(folder)
        except UserError as error:
            faults += [(place, error)] if "\n" in str(error) else []
        except Exception as error:
            faults.append((place, error))
    assert not faults


SURROGATE = "\ud800"


@pytest.mark.parametrize("where", ["node_labels", "label", "both"])
def test_lone_surrogates_in_labels(where, tmp_path):
    """JSON can write halves of characters, which no file of text can hold."""
    lines = []
    for number in range(12):
        graph = {"edges": [[0, 1]], "num_nodes": 2}
        if where != "label":
            graph["node_labels"] = ["C", SURROGATE if number % 2 else "N"]
        if where != "node_labels":
            graph["label"] = SURROGATE if number % 2 else "a"
        lines.append(json.dumps(graph))
    (tmp_path / "graphs.jsonl").write_text("\n".join(lines) + "\n")
    first = run("data", "graphs.jsonl")
    assert_refused_or_read(first)
    if first.code == 2:
        return
    for arguments in (
        ("pack", "graphs.jsonl", "--out", "packed.safetensors"),
        ("data", "packed.safetensors"),
        ("pack", "graphs.jsonl", "--out", "store.joao"),
        ("data", "store.joao", "--check"),
        ("pretrain", "graphs.jsonl", "--out", "run", "--epochs", 1),
        ("embed", "run", "graphs.jsonl", "--out", "out.csv"),
        ("embed", "run", "graphs.jsonl", "--out", "out.npz"),
        ("report", "run", "--out", "report.html"),
        ("export", "run", "--out", "model.safetensors"),
        ("finetune", "run", "graphs.jsonl", "--out", "tuned", "--epochs", 1),
        ("predict", "tuned", "graphs.jsonl", "--out", "predicted.csv"),
        ("report", "tuned", "--out", "tuned.html"),
        ("export", "tuned", "--out", "tuned.safetensors"),
    ):
        if "tuned" in arguments and where == "node_labels":
            continue
        assert_refused_or_read(run(*arguments, deadline=30))


def test_lone_surrogates_in_names_of_graphs_and_columns(tmp_path):
    name = os.fsdecode(b"name-\xff.jsonl")
    (tmp_path / name).write_text(graph_lines(6))
    for arguments in (
        ("data", name),
        ("pack", name, "--out", "packed.safetensors"),
        ("pack", name, "--out", os.fsdecode(b"store-\xff.joao")),
        ("data", os.fsdecode(b"store-\xff.joao")),
        ("pretrain", name, "--out", "run", "--epochs", 1),
        ("report", "run", "--out", "report.html"),
        ("export", "run", "--out", "model.safetensors"),
        ("data", os.fsdecode(b"absent-\xff.jsonl")),
    ):
        assert_refused_or_read(run(*arguments, deadline=30))


ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("what", ["data", "unknown", pytest.param("evaluate", marks=pytest.mark.slow), "help"])
def test_an_ascii_terminal_is_enough(what, trained, graphs, tmp_path):
    (tmp_path / "größe.jsonl").write_text(graph_lines(12).replace('"label": 1', '"label": "größer"'))
    arguments = {
        "data": ("data", "größe.jsonl"),
        "unknown": ("data", "größer.jsonl"),
        "evaluate": ("evaluate", trained, graphs, "--out", "score.json", "--folds", 2, "--jobs", 1),
        "help": ("pretrain", "--help"),
    }[what]
    ended = end(begin(*arguments, folder=tmp_path, environment=ASCII), 60)
    assert ended.code == (2 if what == "unknown" else 0), ended.err[-1500:]
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("loggers", [3, True, {"a": 1}, object(), [object()], "csv"])
def test_loggers_may_be_anything(loggers, graphs, tmp_path):
    assert_one_line(call(lambda: joao.JOAO(epochs=1, device="cpu", loggers=loggers).fit(graphs), deadline=30))


@pytest.mark.parametrize("width", [10**7, 10**10, 10**19, 10**40])
@pytest.mark.parametrize("option", ["width", "layers"])
def test_a_large_encoder_is_refused(option, width, tmp_path):
    ended = run("pretrain", "MUTAG", "--out", "run", "--epochs", 1, "--set", f"encoder.{option}={width}")
    assert_one_line(ended)
    assert not (tmp_path / "run").exists()


def test_a_large_encoder_is_refused_in_python(tmp_path):
    assert_one_line(
        call(lambda: joao.JOAO(epochs=1, device="cpu", encoder={"name": "gin", "width": 10**7}).fit("MUTAG"))
    )


@pytest.mark.slow
def test_records_of_the_paper_s_tables_may_have_any_shape(tmp_path):
    path = tmp_path / "results" / "unsupervised.jsonl"
    path.parent.mkdir()
    lines = (RECORDS / "unsupervised.jsonl").read_text().splitlines()
    record = next(each for each in map(json.loads, lines) if each["cell"]["dataset"] == "MUTAG")
    cases = []
    pairs = [(place, new) for place in places_of(record) for new in ODD]
    for place, new in random.Random(0).sample(pairs, 60):
        content = json.dumps(changed(record, place, new))
        cases.append((lambda content=content: path.write_text(f"{content}\n"), ("tables", path.parent)))
    ends = run_each(cases, program="repro", folder=tmp_path, deadline=120)
    faults = [
        (case[1][0], ended.code, ended.err.strip().rsplit("\n", 1)[-1][:100])
        for case, ended in zip(cases, ends, strict=True)
        if ended.code not in (0, 2)
    ]
    assert not faults, f"{len(faults)} of {len(ends)}, such as {faults[:8]}"
