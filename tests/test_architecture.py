"""The layers of the package, and what none of its files may do."""

import ast
from itertools import product
from pathlib import Path

import pytest

import joao

ROOT = Path(joao.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# From the ground up: a module imports its own folder and what stands in lines above its own.
# Members of one line do not import one another.
LAYERS = (
    ("errors", "catalogue", "atoms", "ogb_codes"),
    (
        "graphs",
        "randomness",
        "files",
        "pair_table",
        "memory",
        "options",
        "provenance",
        "shipped",
        "strengths",
        "toml_text",
        "workers",
    ),
    ("padded",),
    ("kernels",),
    ("data", "padded_store"),
    ("augmentations", "baselines", "encoders", "heads", "objectives", "policies"),
    ("training",),
    ("evaluation",),
    ("recipe", "tensor_files", "epoch_lines"),
    ("building", "run", "settings"),
    ("trained",),
    ("keeping", "epoch_logs"),
    ("experiment", "finetuned"),
    ("finetuning",),
    ("scoring", "estimator"),
    ("finetuned_estimator",),
    ("classifier_estimator", "regressor_estimator"),
    ("reproduce", "benchmarks"),
    ("comparison",),
    ("reporting",),
    ("export",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ENTRY_POINTS = {"__init__", "__main__"}


def name_of(path):
    """``src/joao/data/tu.py``: ``joao.data.formats.tu``."""
    return ".".join(("joao", *path.relative_to(ROOT).with_suffix("").parts))


def block_of(module):
    """``joao.data.formats.tu``: ``data``; the package itself is ``__init__``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def trees():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


TREES = trees()


def imports(path):
    """Every module that a file imports, also inside functions and for type checkers only."""
    package = name_of(path).split(".")
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: -node.level], *([node.module] if node.module else [])])
            module = base if node.level else node.module
            for alias in node.names:
                submodule = f"{module}.{alias.name}".removeprefix("joao.").replace(".", "/")
                is_file = module.startswith("joao") and (
                    (ROOT / f"{submodule}.py").exists() or (ROOT / submodule).is_dir()
                )
                yield f"{module}.{alias.name}" if is_file else module


def called(tree):
    """The dotted names of everything that is called."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def ids(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


def test_every_block_has_a_layer():
    assert {block_of(name_of(path)) for path in FILES} - ENTRY_POINTS - {"recipes"} == set(LEVEL)


def test_the_drawing_has_every_block_below_what_it_may_import():
    text = (ROOT.parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawn = [line[:74].split() for line in text.split("```")[1].splitlines()]  # words of explanation stand behind
    line_of = {name: number for number, names in enumerate(drawn) for name in names if name not in "│→"}
    assert set(line_of) == set(LEVEL)
    for own, other in product(LEVEL, LEVEL):
        assert LEVEL[own] >= LEVEL[other] or line_of[own] <= line_of[other], f"{own} is drawn below {other}"


INSIDE = [path for path in FILES if block_of(name_of(path)) in LEVEL]


@pytest.mark.parametrize("path", INSIDE, ids=ids(INSIDE))
def test_imports_go_downwards(path):
    own = block_of(name_of(path))
    for module in imports(path):
        if module.split(".")[0] != "joao":
            continue
        other = block_of(module)
        if other == own or (other == "__init__" and own in ("provenance", "cli")):  # for the version alone
            continue
        assert other in LEVEL, f"{name_of(path)} imports {module}"
        assert LEVEL[other] < LEVEL[own], f"{name_of(path)} imports {module}, which does not stand below it"


def test_evaluation_knows_no_method():
    """What scores encoders must not know how they were pre-trained; fine-tuning them is part of a protocol."""
    ground = {"errors", "catalogue", "graphs", "randomness", "files", "pair_table", "provenance", "kernels", "data"}
    allowed = ground | {"training", "evaluation"}
    for path in (ROOT / "evaluation").glob("*.py"):
        used = {block_of(module) for module in imports(path) if module.startswith("joao")}
        assert used <= allowed, f"{path.name} imports {used - allowed}"


def test_the_check_of_imports_sees_every_kind(monkeypatch):
    code = "if TYPE_CHECKING:\n    from joao.cli import main\ndef f():\n    import joao.runs.folder\n    from . import data\n"
    path = ROOT / "made_up.py"
    monkeypatch.setitem(TREES, path, ast.parse(code))
    assert set(imports(path)) == {"joao.cli.main", "joao.runs.folder", "joao.data"}


BELOW_CLI = [path for path in FILES if block_of(name_of(path)) != "cli" and path.name != "__main__.py"]


@pytest.mark.parametrize("path", BELOW_CLI, ids=ids(BELOW_CLI))
def test_nothing_below_the_command_line_prints(path):
    roots = {module.split(".")[0] for module in imports(path)}
    assert not roots & {"typer", "rich", "click", "tqdm", "logging"}
    assert not called(TREES[path]) & {"print", "sys.stdout.write", "sys.stderr.write", "breakpoint", "input"}


@pytest.mark.parametrize("path", FILES, ids=ids(FILES))
def test_no_global_randomness(path):
    calls = called(TREES[path])
    if path.name != "randomness.py":
        assert not calls & {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed_all", "torch.random.fork_rng"}
        assert not {call for call in calls if call.startswith(("np.random.", "numpy.random."))}
        assert "random" not in set(imports(path))
    assert "seed_everything" not in {call.rpartition(".")[2] for call in calls}
    assert not calls & {"np.random.seed", "numpy.random.seed"}


@pytest.mark.parametrize("path", FILES, ids=ids(FILES))
def test_no_drawers_for_odds_and_ends(path):
    forbidden = {"utils", "util", "misc", "helpers", "helper", "common", "manager", "base_utils"}
    assert not forbidden & set(path.relative_to(ROOT).with_suffix("").parts)


DOCUMENTED = [path for path in FILES if not path.name.startswith("_") or path.name == "__init__.py"]


@pytest.mark.parametrize("path", DOCUMENTED, ids=ids(DOCUMENTED))
def test_every_module_says_what_it_is(path):
    tree = TREES[path]
    if not tree.body:
        return  # marks a folder as part of the package
    members = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    public = [node for node in members if not node.name.startswith("_")]
    assert ast.get_docstring(tree) or any(ast.get_docstring(node) for node in public)


BLOCKS = next(line for line in LAYERS if "policies" in line)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_does_not_know_another(block):
    others = set(BLOCKS) - {block}
    for path in FILES:
        if block_of(name_of(path)) == block:
            assert not others & {block_of(module) for module in imports(path) if module.startswith("joao.")}


def test_public_names_are_there():
    for name in joao.__all__:
        assert getattr(joao, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = joao.nothing
