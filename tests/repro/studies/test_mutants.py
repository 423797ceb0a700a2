"""A mutant is noticed by a test that fails, and by nothing else; the page of the full study is that of its record."""

import ast
import json
import subprocess
import sys
import tomllib

import pytest

from repro.studies import mutants as study
from repro.studies.common import read_record

ROOT = study.ROOT
SUBJECT = '''"""A subject."""
LEAST = 3
LIMIT = 7

def is_large(number: int = 0) -> bool:
    """Whether it is.

    >>> is_large(9)
    True
    """
    return number > LEAST

class Scale:
    factor = 2.0

    def __call__(self, value):
        if value is None:
            raise ValueError("no value, " + "none")
        return self.factor * value
'''
TESTS = """from subject import LIMIT, Scale, is_large

def test_limit():
    assert LIMIT == 7

def test_sizes():
    assert is_large(5)
    assert not is_large(1)

def test_scale():
    assert Scale()(4) == 8
"""
RUN = """import sys
sys.path[:0] = ["src", {root!r}]
from pathlib import Path
from repro.studies import mutants
mutants.ROOT, mutants.TARGETS = Path.cwd(), {{"src/subject.py": ("tests/test_subject.py",)}}
mutants.RECORD, mutants.PAGE = Path("record.json"), Path("page.md")
mutants.main()
"""


@pytest.fixture(scope="module")
def record():
    return read_record("mutants")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b <= c", ["x = a <= b <= c", "x = a < b < c"]),
        ("x = a in b", ["x = a not in b"]),
        ("x = a + b * c", ["x = a - b * c", "x = a + b / c"]),
        ("x = a // b", ["x = a * b"]),
        ("x = a and b", ["x = a or b"]),
        ("x = -a", ["x = a"]),
        ("x = 0, 1.5, 0.0", ["x = (1, 1.5, 0.0)", "x = (0, 3.0, 0.0)", "x = (0, 1.5, 1.0)"]),
        ("x = True, 'a'", ["x = (False, 'a')", "x = (True, 'ax')"]),
        ("x = a if b else c", ["x = c if b else a"]),
        ("if a:\n    b()", ["if not a:", "pass  # b()"]),
        ("def f() -> 1:\n    '''Text.'''\n    return a", ["return None  # return a"]),
        ("def f():\n    return None", []),
        ("raise ValueError('a' + str(1))", ["pass  # raise ValueError('a' + str(1))"]),
        ("a.b = c", ["pass  # a.b = c"]),
        ("x: int = y", []),
        ("@f(1)\nclass A:\n    '''Text.'''", []),
    ],
)
def test_mutants_of_a_line(source, expected):
    assert [mutant.became for mutant in study.mutants(source)] == expected


def test_mutant_differs_in_one_line():
    whole = ast.unparse(ast.parse(SUBJECT)).split("\n")
    for mutant in study.mutants(SUBJECT):
        (changed,) = [pair for pair in zip(whole, mutant.source.split("\n"), strict=True) if pair[0] != pair[1]]
        assert [line.strip() for line in changed] == [mutant.was, mutant.became.partition("  # ")[0]]


@pytest.fixture
def outcomes(tmp_path):
    """Tries the mutants of ``SUBJECT``: what a statement became, to the test that failed."""
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "src/subject.py").write_text(SUBJECT)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --doctest-modules\n")
    (tmp_path / "conftest.py").write_text("import hypothesis\nhypothesis.settings.register_profile('joao')\n")

    def run(tests, *options):
        (tmp_path / "tests/test_subject.py").write_text(tests)
        words = [sys.executable, "-c", RUN.format(root=str(ROOT)), *options]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads((tmp_path / "record.json").read_text())["files"]["src/subject.py"]["mutants"]
        return {mutant["became"]: mutant["failed"].partition("::")[2] for mutant in found}

    return run


@pytest.mark.slow
def test_only_untested_mutants_survive(outcomes, tmp_path):
    found = outcomes(TESTS)
    assert found == {
        "LEAST = 4": "",
        "LIMIT = 8": "test_limit",
        "def is_large(number: int=1) -> bool:": "",
        "return None  # return number > LEAST": "subject.is_large",
        "return number >= LEAST": "",
        "factor = 4.0": "test_scale",
        "if value is not None:": "test_scale",
        "pass  # raise ValueError('no value, ' + 'none')": "",
        "return None  # return self.factor * value": "test_scale",
        "return self.factor / value": "test_scale",
    }
    assert "| `src/subject.py` | 4 | 10 | 6 | 4 | 60.0 |" in (tmp_path / "page.md").read_text()
    # Only survivors are tried again: that the old tests are gone makes no difference.
    other = "from subject import is_large\n\ndef test_bound():\n    assert not is_large(3)\n"
    assert outcomes(other, "--survivors") == found | {"return number >= LEAST": "test_bound"}


def test_every_file_was_tried_and_every_survivor_is_explained(record):
    assert set(record["files"]) == set(study.targets())
    told = tomllib.loads((ROOT / "repro/studies/mutants.toml").read_text(encoding="utf-8"))
    survivors = {
        file: {
            mutant["became"]: told["survivors"][file][mutant["became"]]
            for mutant in row["mutants"]
            if not mutant["failed"]
        }
        for file, row in record["files"].items()
    }
    assert {file: rows for file, rows in survivors.items() if rows} == told["survivors"]  # and nobody else is
    assert {word for rows in survivors.values() for word in rows.values()} == set(told["words"])


def test_record_supports_the_documents(record):
    mutants = [mutant for row in record["files"].values() for mutant in row["mutants"]]
    assert len(mutants) > 1000
    assert sum(bool(mutant["failed"]) for mutant in mutants) / len(mutants) > 0.9
