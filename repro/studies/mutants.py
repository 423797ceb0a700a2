"""Would the tests fail if what they test broke?

    python studies/mutants.py results/mutants.json results/mutants.md [--survivors] [FILE ...]

Each file of ``TARGETS`` is changed in one place at a time, as a slip of the pen would: a mutant. The tests of the file
must then fail. pytest collects them once, with everything loaded; each mutant is a fork, in which the changed code takes
the place of the old one and the tests run until one fails. With names of files, only their part of the record is made
anew; with ``--survivors``, when tests were added, only what no test had noticed is tried again. Why a mutant survives is told in ``mutants.toml``.
"""

from __future__ import annotations

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
from repro.studies.common import PAGES

ROOT = Path(__file__).parents[2]
# Files or folders, and the tests that should notice a change, in addition to the doctests of the file.
TARGETS: dict[str, tuple[str, ...]] = {
    "src/joao/policies": ("tests/policies",),
    "src/joao/objectives": ("tests/objectives",),
    "src/joao/evaluation/folds.py": ("tests/evaluation/test_folds.py",),
    "src/joao/evaluation/splits.py": ("tests/evaluation/test_splits.py", "tests/evaluation/test_labels.py"),
    "src/joao/augmentations": ("tests/augmentations",),
    "src/joao/training/checkpoint.py": ("tests/training/test_checkpoint.py",),
    "src/joao/runs/pretraining.py": ("tests/test_keeping.py",),
    "src/joao/runs/folder.py": ("tests/runs/test_folder.py", "tests/runs/test_tensor_files.py"),
}
REASONS = ROOT / "repro/studies/mutants.toml"
RECORD, PAGE = RECORDS / "mutants.json", PAGES / "mutants.md"
PAIRS = """Lt LtE, Gt GtE, Eq NotEq, In NotIn, Is IsNot, And Or, Add Sub, Mult Div, BitAnd BitOr,
    FloorDiv Mult, Mod Mult, Pow Mult"""
OTHER: dict[type[ast.AST], Any] = {}  # what stands for an operator by mistake
for pair in PAIRS.split(","):
    one, other = (getattr(ast, name) for name in pair.split())
    OTHER[one] = other
    OTHER.setdefault(other, one)
ABOUT = """\
Each file is changed in one place at a time: a comparison, an operator, a number, a text or a truth value becomes another one, a condition is
turned round, a function returns nothing, a call, an assignment to an attribute or an error is left out. All such changes are tried; types,
decorators and the words of errors stay as they are. A change is noticed when a test of the default suite fails that belongs to the file: its
examples, and the tests that `TARGETS` in `studies/mutants.py` names."""


@dataclass(frozen=True)
class Mutant:
    """A file with one change: the line, the statement before and after, the whole text."""

    line: int
    was: str
    became: str
    source: str
    is_in_function: bool


def mutants(source: str) -> Iterator[Mutant]:
    """One change after the other, in the order of the text.

    >>> [mutant.became for mutant in mutants("def f(x):\\n    return x < 1")]
    ['return None', 'return x <= 1', 'return x < 2']
    """
    tree = ast.parse(source)

    def visit(parents: tuple[ast.AST, ...], holder: Any, key: str | int) -> Iterator[Mutant]:
        node = holder[key]
        inner = (*parents, node)
        statement = next(each for each in reversed(inner) if isinstance(each, ast.stmt))
        was, is_in_function = head(statement), any(isinstance(each, ast.FunctionDef) for each in inner)
        for other in changes(node):
            holder[key] = other
            became = head(other if statement is node else statement)
            became += f"  # {was}" * isinstance(other, ast.Pass | ast.Return)
            yield Mutant(node.lineno, was, became, ast.unparse(tree), is_in_function)
        holder[key] = node
        if not isinstance(node, ast.Raise):  # the words of messages are no subject
            for place in inside(node):
                yield from visit(inner, *place)

    for place in inside(tree):
        yield from visit((tree,), *place)


def inside(node: ast.AST) -> Iterator[tuple[Any, str | int]]:
    """Where what is inside a node is held; not annotations, decorators, formats, imports and docstrings."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "format_spec"):
            continue
        for key, child in enumerate(value) if isinstance(value, list) else [(field, value)]:
            is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not is_text and not isinstance(child, ast.Import | ast.ImportFrom):
                yield (value if isinstance(value, list) else vars(node)), key


def head(statement: ast.AST) -> str:
    return ast.unparse(statement).split("\n")[0] if hasattr(statement, "body") else ast.unparse(statement)


def changes(node: ast.AST) -> list[ast.AST]:
    """What could stand for ``node`` by mistake."""
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


def take_place(holder: Any, name: str, new: Any) -> None:
    """Puts ``new`` where ``holder`` has its ``name``, and where others have it from there."""
    old = vars(holder).get(name)
    if new is old:  # it is imported from elsewhere
        return
    if isinstance(old, type) and isinstance(new, type):
        for each in set(vars(new)) - {"__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl"}:
            take_place(old, each, vars(new)[each])
    elif is_like(old, new):
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    elif isinstance(holder, type):
        setattr(holder, name, new)
    else:
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is old and (module is holder or old is not None):
                setattr(module, name, new)


def is_like(old: Any, new: Any) -> bool:
    """Whether both are functions, of which one can have the code of the other."""
    both = isinstance(old, FunctionType) and isinstance(new, FunctionType)
    return both and len(old.__code__.co_freevars) == len(new.__code__.co_freevars)


def load(file: str, source: str) -> None:
    """Has the module of ``file``, which is loaded, behave as ``source`` says."""
    name = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
    made: dict[str, Any] = {"__name__": name}
    exec(compile(source, ROOT / file, "exec", dont_inherit=True), made)
    for each, value in made.items():
        if not each.startswith("__"):
            take_place(sys.modules[name], each, value)


class Trial:
    """A plugin of pytest: instead of running the tests once, runs those of each file on each of its mutants.

    Args:
        files: to be changed.
        noticed: by what test, of mutants that need not be tried: file, line and what the statement became.
        keep: is handed what came of each file.
    """

    def __init__(
        self, files: list[str], noticed: dict[tuple[str, int, str], str], keep: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self.files, self.noticed, self.keep, self.failed = files, noticed, keep, ""
        self.seconds: dict[pytest.Item, float] = {}  # of each test, without a mutant
        self.entered: dict[pytest.Item, set[str]] = {}  # the files whose functions it calls
        self.names: dict[pytest.DoctestItem, dict[str, Any]] = {}  # what an example finds, which its run takes away

    def run_all(self) -> None:
        """Tries all mutants of all files."""
        tests = [
            each for target, tests in TARGETS.items() for each in tests if any(f.startswith(target) for f in self.files)
        ]
        with TemporaryDirectory() as place:
            options = ["-q", "-s", "-m", "not slow", "-p", "no:cacheprovider", "--basetemp", f"{place}/tests"]
            status = pytest.main([*options, *(str(ROOT / each) for each in [*tests, *self.files])], plugins=[self])
        if status:
            sys.exit(f"pytest ended with {status}.")

    def pytest_collection(self) -> None:
        import hypothesis  # pytest wants to load it itself

        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]  # nobody reads the shortest example
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
            for mutant in mutants(text):
                failed = self.noticed.get((file, mutant.line, mutant.became)) or self.outcome(file, mutant, tests)
                row = {"line": mutant.line, "became": mutant.became, "failed": failed}
                found.append(row if failed else row | {"was": mutant.was})
                tests.sort(
                    key=lambda item: item.nodeid != failed
                )  # first next time: the next mutant is often like this
            self.keep(file, {"tests": len(tests), "mutants": found})
            survivors = [f"  {each['line']}: {each['became']}" for each in found if not each["failed"]]
            print("\n".join([f"{file}: {len(found)} mutants, {len(survivors)} survive", *survivors]), flush=True)
        return True

    def run(self, items: list[pytest.Item], watch: bool = False) -> None:
        """Runs tests until one fails; with ``watch``, notes how long each takes and which files it enters."""
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
        """The test that fails with the mutant, in a process of its own; nothing where all pass."""
        if mutant.is_in_function:  # who never enters the file cannot notice
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
            os.killpg(child, signal.SIGKILL)  # what the tests had started
        return failed if status == 0 else "(too long)" if status == signal.SIGALRM else "(the process ended)"


def rank(file: str, item: pytest.Item) -> int:
    """How near a test is to a file: 0 its examples, 1 its own, 2 those of its family, 3 others."""
    path, own = item.path.relative_to(ROOT).as_posix(), f"test_{Path(file).stem.lstrip('_')}"
    family = next(tests for target, tests in TARGETS.items() if file.startswith(target))
    near = [path == file, item.path.stem == own and path.startswith(family), path.startswith(family)]
    return next((number for number, each in enumerate(near) if each), 3)


def page(record: dict[str, Any]) -> str:
    """The tables of a record."""
    told = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    lines, survivors = [], []
    for file, row in record["files"].items():
        left = [mutant for mutant in row["mutants"] if not mutant["failed"]]
        lines.append([f"`{file}`", row["tests"], len(row["mutants"]), len(row["mutants"]) - len(left), len(left)])
        for each in left:
            why = told["survivors"].get(file, {}).get(each["became"], "unexplained")
            cells = [f"`{Path(file).name}`, {each['line']}", f"`{each['was']}`", f"`{each['became']}`", why]
            survivors.append([cell.replace("|", "\\|") for cell in cells])
    lines.append(["all", "", *(sum(line[at] for line in lines) for at in (2, 3, 4))])
    found, where = record["versions"], record["machine"]
    shares = [[*map(str, line), f"{100 * line[3] / max(line[2], 1):.1f}"] for line in lines]
    return "\n\n".join(
        [
            "# Would the tests notice?",
            f"Made by `make mutants`, a file or its survivors at a time where that was asked for, so not all in one run; not to be edited. Last: joao {found['joao']} (source {found['source']}), torch {found['torch']}, {where['processor']}, {where['threads']} thread.",
            ABOUT,
            markdown(["file", "tests", "mutants", "noticed", "survived", "noticed, %"], shares),
            "## Survivors",
            "\n".join(f"- {word}: {meaning}" for word, meaning in told["words"].items()),
            markdown(["file, line", "was", "became", "why"], survivors) + "\n",
        ]
    )


def targets() -> list[str]:
    """The files, without those that only name others."""
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
