"""The examples of the documents run: each page's blocks in their order, in a folder of their own.

A block that cannot run has a line ``<!-- not run: why -->`` before it. Trainings are cut to an epoch or two, and
scoring to two folds of one partition; beyond that, examples run as they stand.
"""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/methods/*.md")])
BLOCK = re.compile(r"^(?:<!-- (not run): .+ -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^print\((.+)\)  # ([(\[].+[)\]])$", re.MULTILINE)
SHELLS = ("sh", "bash", "console")
QUICK = {
    "pretrain": ["--epochs", "1"],
    "finetune": ["--epochs", "1"],
    "evaluate": ["--folds", "2"],
    "compare": ["--epochs", "1", "--folds", "2", "--partitions", "1"],
}
NEEDS = {
    "attr_masking": "rdkit",
    "scaling": "pyarrow",
    "exported-models": "rdkit",
    "molecules": "rdkit",
    "compare": "gensim",
}
SLOW = ("compare", "report", "scikit-learn", "methods/baselines")
SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "C1CCCCC1", "CCOC(C)=O"]


def blocks(page):
    """Language and text of every block that is to be run."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, text) for not_run, language, text in found if not not_run and language in ("python", *SHELLS)]


def name_of(page):
    return page.relative_to(ROOT / "docs").with_suffix("").as_posix()


def parameters():
    for page in PAGES:
        if blocks(page):
            marks = [pytest.mark.slow] if name_of(page) in SLOW else []
            yield pytest.param(page, marks=marks, id=name_of(page))


@pytest.fixture
def files_of_a_user(tmp_path):
    """The files that examples call theirs."""
    for name in ("molecules.csv", "new.csv"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in ["smiles", *SMILES]))
    graphs = [
        {"num_nodes": 4, "edges": [[0, 1], [1, 2], [2, number % 4]], "node_labels": [0, 0, 1, 2], "label": number % 2}
        for number in range(24)
    ]
    (tmp_path / "my_graphs.jsonl").write_text("".join(f"{json.dumps(graph)}\n" for graph in graphs))


def run_shell(text, joao):
    """Lines of joao in this process, with less to do, and others in a shell."""
    others = []
    for line in text.splitlines():
        if not line.startswith("joao "):
            others.append(line)
            continue
        if others:
            subprocess.run(["bash", "-euc", "\n".join(others)], check=True)
            others = []
        _, command, *words = shlex.split(line, comments=True)
        quick = QUICK.get(command, [])
        further = [] if quick and quick[0] in words else quick
        outcome = joao(command, *words, *further)
        assert outcome.code == 0, f"{line}\n{outcome.err}"


def check_printed(line):
    """A line that prints a tuple or list and checks it against the comment behind."""
    return f"found = {line[1]}; print(found); assert str(found) == {line[2]!r}, found"


@pytest.mark.parametrize("page", list(parameters()))
@pytest.mark.filterwarnings("default::joao.core.errors.JoaoNotice")  # they are for the reader
def test_the_examples_of_a_page_run(page, joao, few_epochs, few_folds, one_partition, files_of_a_user, capsys):
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem])
    names = {"__name__": "example"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(PRINTED.sub(check_printed, text), str(page), "exec"), names)
        else:
            run_shell(text, joao)


def test_every_method_has_examples_for_shell_and_python():
    from joao.config.recipe import METHODS

    text = {page: page.read_text(encoding="utf-8") for page in PAGES}
    for method in METHODS:
        own = [page for page in PAGES if f"--method {method}" in text[page] and f'JOAO("{method}"' in text[page]]
        assert own or method == "gae", method  # which is another name of edge_pred


def test_code_blocks_name_their_language():
    """Or it would not be run."""
    unnamed = [
        (name_of(page), text)
        for page in PAGES
        for _, language, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if not language and text.startswith(("joao ", "import ", "from "))
    ]
    assert unnamed == []
