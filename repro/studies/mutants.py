"""Mutation testing: would the tests fail if the code they test was broken?

    python -m repro.studies.mutants [--survivors] [FILE ...]

Each file of ``TARGETS`` is changed in one place at a time, as by a slip: a mutant. The tests of the file must then fail.
pytest collects them once, with everything imported; each mutant is a fork in which the changed code replaces the old code
and the tests run until one fails. With names of files, only their part of the record is updated; with ``--survivors``,
only mutants that no test noticed are tried again. ``mutants.toml`` explains why mutants survive.
"""

import argparse
import ast
import json
import os
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any

import pytest

from joao.core.files import write_file, write_json
from joao.core.provenance import machine, versions
from joao.evaluation.tables import markdown
from repro.record_files import RECORDS
from repro.studies.common import PAGES, describe_origin, generated, make_page

ROOT = Path(__file__).parents[2]
# Files or folders, and the tests that should notice a change, in addition to the doctests of the file.
TARGETS: dict[str, tuple[str, ...]] = {
    "src/joao/policies": ("tests/policies",),
    "src/joao/objectives": ("tests/objectives",),
    "src/joao/evaluation/folds.py": ("tests/evaluation/test_folds.py",),
    "src/joao/evaluation/splits.py": ("tests/evaluation/test_splits.py", "tests/evaluation/test_few_labels.py"),
    "repro/splits.py": ("tests/evaluation/test_few_labels.py",),
    "src/joao/augmentations": ("tests/augmentations",),
    "src/joao/training/checkpoint.py": ("tests/training/test_checkpoint.py",),
    "src/joao/runs/pretraining.py": ("tests/runs/test_checkpointing.py",),
    "src/joao/runs/folder.py": tuple(
        f"tests/runs/test_folder.py::test_{name}"
        for name in (
            "tensor_file_round_trip",
            "checksum_depends_on_name_type_shape_and_values",
            "files_of_earlier_versions_stay_readable",
            "file_without_a_checksum_is_read_unless_checked",
            "missing_tensor_file_is_rejected",
            "invalid_tensor_file_gets_a_one_line_error",
        )
    ),
}
# Files of which only these functions and classes are mutated.
PARTS: dict[str, tuple[str, ...]] = {
    "src/joao/evaluation/splits.py": (
        "Split",
        "hold_out",
        "sample_stratified",
        "default_split",
        "split_notice",
        "split_graphs",
        "_random_split",
        "_scaffold_groups",
    ),
    "src/joao/runs/pretraining.py": ("Checkpointer",),
    "src/joao/runs/folder.py": ("checksum", "write_tensors", "read_tensors"),
}
REASONS = ROOT / "repro/studies/mutants.toml"
RECORD, PAGE = RECORDS / "mutants.json", PAGES / "mutants.md"
PAIRS = """Lt LtE, Gt GtE, Eq NotEq, In NotIn, Is IsNot, And Or, Add Sub, Mult Div, BitAnd BitOr,
    FloorDiv Mult, Mod Mult, Pow Mult"""
OTHER: dict[type[ast.AST], Any] = {}  # operator -> the operator that replaces it
for pair in PAIRS.split(","):
    one, other = (getattr(ast, name) for name in pair.split())
    OTHER[one] = other
    OTHER.setdefault(other, one)
ABOUT = """\
Each file is changed in one place at a time: a comparison, an operator, a number, a string or a boolean is replaced by another one, a condition is
negated, a function returns None, or a call, an assignment to an attribute or an error is removed. All such changes are tried, except in types,
decorators and error messages. A mutant is killed if a test of the default suite fails that belongs to the file: its doctests, or the tests
that `TARGETS` in `repro/studies/mutants.py` lists."""


@dataclass(frozen=True)
class Mutant:
    """A file with one change: the line, the statement before and after, and the whole text."""

    line: int
    was: str
    became: str
    source: str
    is_in_function: bool


def mutants(source: str, names: tuple[str, ...] = ()) -> Iterator[Mutant]:
    """Yield all mutants, or those of the functions and classes in ``names``, in the order of the text.

    >>> [mutant.became for mutant in mutants("def f(x):\\n    return x < 1")]
    ['return None  # return x < 1', 'return x <= 1', 'return x < 2']
    """
    tree = ast.parse(source)

    def visit(parents: tuple[ast.AST, ...], holder: Any, key: str | int) -> Iterator[Mutant]:
        node = holder[key]
        inner = (*parents, node)
        statement = next(each for each in reversed(inner) if isinstance(each, ast.stmt))
        was, is_in_function = first_line(statement), any(isinstance(each, ast.FunctionDef) for each in inner)
        for other in changes(node):
            holder[key] = other
            became = first_line(other if statement is node else statement)
            became += f"  # {was}" * isinstance(other, ast.Pass | ast.Return)
            yield Mutant(node.lineno, was, became, ast.unparse(tree), is_in_function)
        holder[key] = node
        if not isinstance(node, ast.Raise):  # messages are not mutated
            for place in children(node):
                yield from visit(inner, *place)

    for holder, key in children(tree):
        if not names or getattr(holder[key], "name", "") in names:
            yield from visit((tree,), holder, key)


def children(node: ast.AST) -> Iterator[tuple[Any, str | int]]:
    """Yield the containers and keys of child nodes, except annotations, decorators, formats, imports and docstrings."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "format_spec"):
            continue
        for key, child in enumerate(value) if isinstance(value, list) else [(field, value)]:
            is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not is_text and not isinstance(child, ast.Import | ast.ImportFrom):
                yield (value if isinstance(value, list) else vars(node)), key


def first_line(statement: ast.AST) -> str:
    return ast.unparse(statement).split("\n")[0] if hasattr(statement, "body") else ast.unparse(statement)


def changes(node: ast.AST) -> list[ast.AST]:
    """Return possible replacements of ``node``."""
    match node:
        case ast.Compare(left, operators, values):
            places = [at for at, operator in enumerate(operators) if type(operator) in OTHER]
            others = [[*operators[:at], OTHER[type(operators[at])](), *operators[at + 1 :]] for at in places]
            return [ast.Compare(left, other, values) for other in others]
        case ast.BinOp(left, operator, right) if type(operator) in OTHER:
            return [ast.BinOp(left, OTHER[type(operator)](), right)]
        case ast.BoolOp(operator, values):
            return [ast.BoolOp(OTHER[type(operator)](), values)]
        case ast.UnaryOp(_, operand):
            return [operand]
        case ast.Constant(bool(value)):
            return [ast.Constant(not value)]
        case ast.Constant(int(value)):
            return [ast.Constant(value + 1)]
        case ast.Constant(float(value)):
            return [ast.Constant(2 * value or 1.0)]
        case ast.Constant(str(value)):
            return [ast.Constant(value + "x")]
        case ast.IfExp(test, first, second):
            return [ast.IfExp(test, second, first)]
        case ast.If(test, body, otherwise) if not isinstance(test, ast.Compare | ast.UnaryOp):
            return [ast.If(ast.UnaryOp(ast.Not(), test), body, otherwise)]
        case ast.Return(value) if value is not None and ast.unparse(value) != "None":
            return [ast.Return(ast.Constant(None))]
        case ast.Raise() | ast.Expr() | ast.AugAssign() | ast.Assign([ast.Attribute() | ast.Subscript()]):
            return [ast.Pass()]
    return []


def replace_attribute(holder: Any, name: str, new: Any) -> None:
    """Replace ``name`` in ``holder`` by ``new``, also where other modules have imported it."""
    old = vars(holder).get(name)
    if new is old:  # imported from elsewhere
        return
    if isinstance(old, type) and isinstance(new, type):
        for each in set(vars(new)) - {"__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl"}:
            replace_attribute(old, each, vars(new)[each])
    elif (
        isinstance(old, FunctionType)
        and isinstance(new, FunctionType)
        and len(old.__code__.co_freevars) == len(new.__code__.co_freevars)
    ):
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    elif isinstance(holder, type):
        setattr(holder, name, new)
    else:
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is old and (module is holder or old is not None):
                setattr(module, name, new)


def load(file: str, source: str) -> None:
    """Replace the code of the imported module of ``file`` by ``source``."""
    name = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
    made: dict[str, Any] = {"__name__": name}
    exec(compile(source, ROOT / file, "exec", dont_inherit=True), made)
    for each, value in made.items():
        if not each.startswith("__"):
            replace_attribute(sys.modules[name], each, value)


class Trial:
    """A plugin of pytest that runs the tests of each file on each of its mutants.

    Args:
        files: the files to mutate.
        noticed: file, line and new statement of mutants that are skipped -> the test that failed.
        keep: called with the result of each file.
    """

    def __init__(
        self, files: list[str], noticed: dict[tuple[str, int, str], str], keep: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self.files, self.noticed, self.keep, self.failed = files, noticed, keep, ""
        self.seconds: dict[pytest.Item, float] = {}  # duration of each test without a mutant
        self.entered: dict[pytest.Item, set[str]] = {}  # files whose functions each test calls
        self.names: dict[pytest.DoctestItem, dict[str, Any]] = {}  # globals of each doctest, which a run deletes

    def run_all(self) -> None:
        """Try all mutants of all files."""
        tests = [
            each for target, tests in TARGETS.items() for each in tests if any(f.startswith(target) for f in self.files)
        ]
        with TemporaryDirectory() as place:
            options = ["-q", "-s", "-m", "not slow", "-p", "no:cacheprovider", "--basetemp", f"{place}/tests"]
            status = pytest.main([*options, *(str(ROOT / each) for each in [*tests, *self.files])], plugins=[self])
        if status:
            sys.exit(f"pytest ended with {status}.")

    def pytest_collection(self) -> None:
        import hypothesis  # must be imported by pytest

        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]  # no need to shrink examples
        hypothesis.settings.register_profile("mutants", hypothesis.settings.get_profile("joao"), phases=phases)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in self.files}
        for file, text in texts.items():
            load(file, ast.unparse(ast.parse(text)))
        self.names = {item: dict(item.dtest.globs) for item in session.items if isinstance(item, pytest.DoctestItem)}
        self.run(session.items, watch=True)
        if self.failed:
            sys.exit(f"{self.failed} fails without a mutant.")
        for file, text in texts.items():
            nearness = {item: rank(file, item) for item in session.items}
            tests = [item for item in session.items if nearness[item] < 3]
            tests.sort(key=lambda item: (nearness[item], self.seconds[item]))
            found = []
            for mutant in mutants(text, PARTS.get(file, ())):
                failed = self.noticed.get((file, mutant.line, mutant.became)) or self.outcome(file, mutant, tests)
                row = {"line": mutant.line, "became": mutant.became, "failed": failed}
                found.append(row if failed else row | {"was": mutant.was})
                tests.sort(
                    key=lambda item: item.nodeid != failed
                )  # first next time, because the next mutant is often similar
            self.keep(file, {"tests": len(tests), "mutants": found})
            survivors = [f"  {each['line']}: {each['became']}" for each in found if not each["failed"]]
            print("\n".join([f"{file}: {len(found)} mutants, {len(survivors)} survive", *survivors]), flush=True)
        return True

    def run(self, items: list[pytest.Item], watch: bool = False) -> None:
        """Run tests until one fails; with ``watch``, record their durations and the files they call."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            began, entered = time.monotonic(), set[str]()
            if isinstance(item, pytest.DoctestItem):
                item.dtest.globs.update(self.names[item])
            if watch:
                sys.setprofile(lambda frame, *_, entered=entered: entered.add(frame.f_code.co_filename))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if watch:
                sys.setprofile(None)
                self.seconds[item], self.entered[item] = time.monotonic() - began, entered
            if self.failed:
                return

    def outcome(self, file: str, mutant: Mutant, tests: list[pytest.Item]) -> str:
        """Return the test that fails with the mutant, in a new process; empty if all pass."""
        if mutant.is_in_function:  # other tests cannot notice
            tests = [item for item in tests if str(ROOT / file) in self.entered[item]]
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            os.setpgid(0, 0)
            signal.alarm(20 + 3 * int(sum(self.seconds[item] for item in tests)))
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            try:
                load(file, mutant.source)
                self.run(tests)
            except BaseException as error:
                self.failed = f"when loaded: {type(error).__name__}"
            os.write(writing, self.failed.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as told:
            failed = told.read()
        _, status = os.waitpid(child, 0)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # processes that the tests started
        return failed if status == 0 else "(too long)" if status == signal.SIGALRM else "(the process ended)"


def rank(file: str, item: pytest.Item) -> int:
    """Return how close a test is to a file: 0 its doctests, 1 its own tests, 2 tests of its target, 3 others."""
    path, own = item.path.relative_to(ROOT).as_posix(), f"test_{Path(file).stem.lstrip('_')}"
    tests = next(tests for target, tests in TARGETS.items() if file.startswith(target))
    family = tuple(each.partition("::")[0] for each in tests)
    near = [path == file, item.path.stem == own and path.startswith(family), path.startswith(family)]
    return next((number for number, each in enumerate(near) if each), 3)


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    lines, survivors = [], []
    for file, row in record["files"].items():
        left = [mutant for mutant in row["mutants"] if not mutant["failed"]]
        lines.append([f"`{file}`", row["tests"], len(row["mutants"]), len(row["mutants"]) - len(left), len(left)])
        for each in left:
            why = reasons["survivors"].get(file, {}).get(each["became"], "unexplained")
            cells = [f"`{Path(file).name}`, {each['line']}", f"`{each['was']}`", f"`{each['became']}`", why]
            survivors.append([cell.replace("|", "\\|") for cell in cells])
    lines.append(["all", "", *(sum(line[at] for line in lines) for at in (2, 3, 4))])
    shares = [[*map(str, line), f"{100 * line[3] / max(line[2], 1):.1f}"] for line in lines]
    stale = (
        ""
        if set(record["files"]) == set(targets())
        else "**Outdated:** files were moved or merged since the last run. "
    )
    return make_page(
        "Mutation testing",
        f"{stale}{generated('mutants')} Parts of the record may come from different runs. Last run: {describe_origin(record)}.",
        ABOUT,
        markdown(["file", "tests", "mutants", "killed", "survived", "killed, %"], shares),
        "## Survivors",
        "\n".join(f"- {word}: {meaning}" for word, meaning in reasons["words"].items()),
        markdown(["file, line", "before", "after", "reason"], survivors),
    )


def targets() -> list[str]:
    """Return all files of the targets, except ``__init__.py``."""
    found = [path for target in TARGETS for path in sorted((ROOT / target).glob("*.py")) or [ROOT / target]]
    return [path.relative_to(ROOT).as_posix() for path in found if path.name != "__init__.py"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    record: dict[str, Any] = {"versions": versions(), "machine": machine("cpu"), "files": {}}
    if arguments.files or arguments.survivors:
        record["files"] = json.loads(RECORD.read_text(encoding="utf-8"))["files"]

    def keep(file: str, row: dict[str, Any]) -> None:
        record["files"][file] = row
        write_json(RECORD, record)
        write_file(PAGE, page(record))

    found = ((file, each) for file, row in record["files"].items() for each in row["mutants"])
    noticed = (
        {(file, each["line"], each["became"]): each["failed"] for file, each in found} if arguments.survivors else {}
    )
    Trial(arguments.files or targets(), noticed, keep).run_all()


if __name__ == "__main__":
    main()
