"""What the package never does with what comes from outside: run it, unpack it, or tell the network of it."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import joao
from joao.core.pair_table import PairTable
from joao.runs.export import export

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("src", "repro", "examples", "fuzz") for path in (ROOT / folder).rglob("*.py"))
# It catches PicklingError: objects that one of our own processes sends to another are pickled.
MAY_NAME_PICKLE = {"src/joao/training/distributed/launch.py"}
# Download of data sets by name; the Ray cluster that the user names; search for a free local port.
MAY_CONNECT = {"src/joao/data/names.py", "src/joao/core/engines.py", "src/joao/training/distributed/launch.py"}
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml", "ogb"}
UNSAFE_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "tempfile.mktemp",
    "pandas.read_pickle",
}
NETWORK = {"urllib", "http", "socket", "ftplib", "requests", "aiohttp", "httpx"}


def faults(tree, name):
    """What in a file should not be there, in words."""
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for module in modules:
            root = module.split(".")[0]
            if root in UNSAFE_MODULES and not (root == "pickle" and name in MAY_NAME_PICKLE):
                yield f"imports {module}"
            if root in NETWORK and name not in MAY_CONNECT and module != "http.client":
                yield f"imports {module}"
            if module.startswith("torch_geometric.datasets"):
                yield f"imports {module}, which downloads and unpickles"
        if isinstance(node, ast.Call):
            yield from _faults_of_call(ast.unparse(node.func), {word.arg: word.value for word in node.keywords})


def _faults_of_call(called, words):
    def says(word, value):
        return isinstance(words.get(word), ast.Constant) and words[word].value is value

    last = called.rpartition(".")[2]
    if called in UNSAFE_CALLS or last in ("extractall", "unpack_archive", "read_pickle", "HTMLParser"):
        yield f"calls {called}"
    if called in ("torch.load", "load_url") and not says("weights_only", True):
        yield "torch.load without weights_only=True"
    if called in ("np.load", "numpy.load") and not (says("allow_pickle", False) or "allow_pickle" not in words):
        yield "np.load with pickles"
    if (called.startswith("subprocess.") or last == "Popen") and "shell" in words and not says("shell", False):
        yield f"{called} in a shell"
    if called.startswith("pickle.") and last != "PicklingError":
        yield f"calls {called}"


ALLOWED = {
    # It runs this project's own code, changed in one place.
    "repro/studies/mutants.py": ("calls exec", "calls compile"),
    # Calls and exceptions that pass through pipes between processes of one command.
    "src/joao/core/processes.py": ("imports pickle", "calls pickle.dumps", "calls pickle.loads"),
    # The user's own methods, on their way to other processes of the same comparison.
    "src/joao/comparison/own.py": ("imports pickle", "imports joblib", "calls pickle.dumps"),
    "src/joao/comparison/methods.py": ("imports pickle", "calls pickle.loads"),
}


def test_nothing_from_outside_is_run():
    found = []
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        faulty = faults(ast.parse(path.read_text(encoding="utf-8")), name)
        found += [f"{name} {fault}" for fault in faulty if fault not in ALLOWED.get(name, ())]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from joblib import load",
        "import yaml.loader",
        "import urllib.request",
        "from torch_geometric.datasets import TUDataset",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=choice)",
        "np.load(path, allow_pickle=True)",
        "def f():\n    return eval(text)",
        "exec(text)",
        "subprocess.run(words, shell=True)",
        "subprocess.run(words, shell=choice)",
        "archive.extractall(folder)",
        "os.system(text)",
        "pickle.loads(data)",
    ],
)
def test_the_scan_sees(code):
    assert list(faults(ast.parse(code), "made/up.py"))


def test_the_scan_lets_pass():
    allowed = (
        "torch.load(path, weights_only=True); np.load(path); re.compile(text); model.eval(); subprocess.run(words)"
    )
    assert list(faults(ast.parse(allowed), "made/up.py")) == []


FORBID = """
import sys
forbidden = ("socket.", "urllib.", "http.client.", "ftplib.", "pickle.find_class")
def tell(event, arguments):
    if event.startswith(forbidden):
        raise SystemExit(f"{event} {arguments}")
sys.addaudithook(tell)
"""
USE = """
import joao, warnings
from pathlib import Path
from joao.data import read
warnings.simplefilter("ignore")
graphs = joao.read("MUTAG")
model = joao.JOAO(epochs=1, device="cpu").fit(graphs)
model.save("run")
assert joao.JOAO.load("run", device="cpu").transform(graphs).shape == (188, 303)
from joao.runs.export import export
exported = export(Path("run"), Path("model.safetensors")).file
assert joao.load(exported, device="cpu").transform(graphs).shape == (188, 303)
from joao.data.formats.packed import write_packed
write_packed(Path("a.safetensors.xz"), graphs)
assert len(joao.read("a.safetensors.xz")) == 188
try:
    joao.read("some-private-name")
    raise SystemExit("read what is not there")
except joao.UserError as error:
    assert "ROOT/some-private-name.zip" in str(error), error
from joao.cli.main import app
app(["data"], standalone_mode=False)
print("done")
"""


def run_forbidden(code, folder):
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
    }
    words = [sys.executable, "-c", FORBID + code]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, check=False)


def test_nothing_asks_the_network_or_unpickles_unless_told_to(tmp_path):
    done = run_forbidden(USE, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("done\n")


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("import joao; joao.read('ENZYMES')", "urllib.Request|socket"),  # a well-known name is what may be fetched
        ("import pickle, collections; pickle.loads(pickle.dumps(collections.OrderedDict()))", "pickle.find_class"),
    ],
)
def test_the_watch_sees(code, event, tmp_path):
    done = run_forbidden(code, tmp_path)
    assert done.returncode == 1
    assert any(done.stderr.startswith(each) for each in event.split("|")), done.stderr


EVIL = "<script>alert('run')</script>\x1b[2J\u202e"


def test_notebooks_and_model_cards_show_names_as_text(tmp_path):
    table = PairTable.of((EVIL, "b"), [[0.5, 0.2], [0.2, 0.1]])
    model = joao.JOAO(epochs=1, device="cpu").fit(joao.read("MUTAG")[:20])
    model.save(tmp_path / "run")
    info = json.loads((tmp_path / "run/run.json").read_text())
    pool = [EVIL, *info["pool"][1:]]
    (tmp_path / "run/run.json").write_text(json.dumps({**info, "data": EVIL, "pool": pool, "command": EVIL}))
    loaded = joao.load(tmp_path / "run", device="cpu")
    card = export(tmp_path / "run", tmp_path / "model.safetensors").card.read_text()
    for text in (table._repr_html_(), loaded._repr_html_(), card):
        assert "<script>alert" not in text
        assert "&lt;script" in text
    assert "\x1b" not in card  # nor does it clear the screen of who looks at it there
    assert "\u202e" not in card
