"""The layers of the package, and what none of its files may do. One test per rule."""

import ast
from functools import cache
from pathlib import Path

import pytest

import joao

ROOT = Path(joao.__file__).parent
REPOSITORY = ROOT.parent.parent

# From the bottom up, with what each room is for. A room imports itself and rooms of lower layers; rooms of one layer do
# not import one another. ARCHITECTURE.md shows this list (`python -m repro docs` writes it there).
LAYERS = (
    {"core": "graph batches, padded batches, randomness, errors, registry, files, processes, provenance"},
    {
        "data": "data set, validation, features, sources, cache; formats, molecules, shards",
        "kernels": "compiled operations beside the plain torch form that defines each: Triton (GPU) and C++ (CPU)",
    },
    {
        "augmentations": "views of a graph",
        "encoders": "graph to vector",
        "objectives": "contrastive and node-level losses",
        "policies": "probabilities of augmentation pairs",
        "heads": "projection heads",
        "baselines": "kernels and embeddings to compare with",
    },
    {
        "config": "recipes, overrides, and the objects built from them",
        "evaluation": "folds, splits, SVM, targets, statistics",
    },
    {"training": "Algorithm 1, fine-tuning, checkpoints; fast (compiled, padded), distributed (several processes)"},
    {"runs": "run folders: pre-train, fine-tune, load, score, log, model card"},
    {
        "estimators": "JOAO, JOAOClassifier, JOAORegressor, load",
        "comparison": "methods on the same folds, intervals and a verdict",
        "report": "the report page and figures",
    },
    {"cli": "one file for each command or pair of related commands"},
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
ENTRY_POINTS = {"__init__", "__main__"}


def module_of(path):
    """``src/joao/data/dataset.py``: ``joao.data.dataset``."""
    return ".".join(("joao", *path.relative_to(ROOT).with_suffix("").parts))


def room_of(module):
    """``joao.data.dataset``: ``data``; the package itself is ``__init__``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def trees():
    """The syntax tree of every file."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


@cache
def imports(path):
    """Every module that a file imports, also inside functions and for type checkers only."""
    return tuple(_imports(path))


def _imports(path):
    package = module_of(path).split(".")
    for node in ast.walk(trees()[path]):
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


@cache
def called(tree):
    """The dotted names of everything that is called."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def violations():
    """Imports that do not go down, as pairs of file and module."""
    found = []
    for path in trees():
        own = room_of(module_of(path))
        for module in imports(path) if own in LEVEL else ():
            other = room_of(module)
            for_the_version = other == "__init__" and module_of(path) in ("joao.core.provenance", "joao.cli.main")
            if module.split(".")[0] != "joao" or other == own or for_the_version:
                continue
            if other not in LEVEL or LEVEL[other] >= LEVEL[own]:
                found.append((str(path.relative_to(ROOT)), module))
    return found


def test_every_room_has_a_layer():
    assert {room_of(module_of(path)) for path in trees()} - ENTRY_POINTS == set(LEVEL)


def test_imports_go_down():
    assert violations() == []


def test_the_check_of_imports_sees_every_kind(monkeypatch):
    code = (
        "if TYPE_CHECKING:\n    from joao.cli import main\n"
        "def f():\n    import joao.runs.folder\n    from .. import estimators\n"
    )
    monkeypatch.setitem(trees(), ROOT / "data/made_up.py", ast.parse(code))
    assert [module for _, module in violations()] == ["joao.cli.main", "joao.runs.folder", "joao.estimators"]


def test_the_product_does_not_know_the_paper():
    users = [str(path) for path in trees() if any(module.split(".")[0] == "repro" for module in imports(path))]
    assert users == []


def test_evaluation_knows_no_method():
    """What scores encoders must not know how they were pre-trained."""
    allowed = {"core", "kernels", "data", "evaluation"}
    for path in (ROOT / "evaluation").glob("*.py"):
        used = {room_of(module) for module in imports(path) if module.startswith("joao")}
        assert used <= allowed, path


SHOW_PROGRESS = {"core/progress.py", "runs/logs.py"}  # on request: verbose=1, or the command line


def test_nothing_below_the_command_line_prints():
    for path, tree in trees().items():
        if room_of(module_of(path)) == "cli" or path.name == "__main__.py":
            continue
        if path.relative_to(ROOT).as_posix() in SHOW_PROGRESS:
            continue
        roots = {module.split(".")[0] for module in imports(path)}
        assert not roots & {"typer", "rich", "click", "tqdm", "logging"}, path
        assert not called(tree) & {"print", "sys.stdout.write", "sys.stderr.write", "breakpoint", "input"}, path


STARTS_PROCESSES = {"get_context", "Process", "Pool", "ProcessPoolExecutor", "Popen", "fork"}
PICKLES = {
    f"{name}_object{end}" for name in ("broadcast", "all_gather", "gather", "scatter", "send") for end in ("", "_list")
}


def test_processes_are_started_in_one_place_and_send_no_objects():
    """Others would wait forever for a process that dies while it starts, or unpickle what came over a network."""
    for path, tree in trees().items():
        last_names = {name.rpartition(".")[2] for name in called(tree)}
        assert not last_names & (PICKLES if path.name == "processes.py" else PICKLES | STARTS_PROCESSES), path


def test_no_global_randomness():
    seeding = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed_all", "torch.random.fork_rng"}
    for path, tree in trees().items():
        calls = called(tree)
        assert "seed_everything" not in {call.rpartition(".")[2] for call in calls}, path
        if path.name != "randomness.py":
            assert not calls & seeding, path
            assert not {call for call in calls if call.startswith(("np.random.", "numpy.random."))}, path
            assert "random" not in imports(path), path


def test_every_room_and_module_says_what_it_is_for():
    silent = []
    for path, tree in trees().items():
        members = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        public = [node for node in members if not node.name.startswith("_")]
        if path.name != "__main__.py" and not ast.get_docstring(tree) and not any(map(ast.get_docstring, public)):
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []


def test_public_names_exist():
    for name in joao.__all__:
        assert getattr(joao, name) is not None
    with pytest.raises(AttributeError):
        _ = joao.nothing
