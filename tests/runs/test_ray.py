"""Work on a real Ray cluster of several nodes in this machine, whose processes die. Oracle: one local process."""

import os
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest

import joao
from joao.core import engines
from joao.core.engines import map_on, map_on_ray
from joao.core.processes import in_order
from joao.data.formats.smiles import Columns
from joao.data.molecules import ReadOptions
from joao.data.shards.writer import BlockSource, pack_shards
from repro.tasks import run_tasks
from tests.messages import refused

pytest.importorskip("rdkit")
ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
pytest.importorskip("pyarrow")

# Ray leaves sockets, processes and files to the end of the process.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    """A head without cores and two nodes with one core each, to which this process is connected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 10**8}
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=10**8)
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def square(item):
    return item**2


def die_once(folder, item):
    """Kills its own process at the first attempt."""
    seen = Path(folder) / str(item)
    if item % 3 == 0 and not seen.exists():
        seen.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item**2


def die(item):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(item):
    raise joao.UserError(f"item {item}") if item else ZeroDivisionError("nothing")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "molecules.csv"
    texts = ["C" * (row % 7 + 1) + ("(" if row % 50 == 7 else "O") for row in range(200)]
    path.write_text("smiles\n" + "".join(f"{text}\n" for text in texts))
    return path


def test_every_item_once_though_workers_die(cluster, tmp_path):
    found = list(map_on_ray(partial(die_once, tmp_path), range(12), 2))
    assert sorted(found) == [(item, item**2) for item in range(12)]
    assert len(list(tmp_path.iterdir())) == 4


def test_results_come_in_order_and_errors_as_they_are(cluster):
    assert list(in_order(map_on("ray", square, range(20)))) == [item**2 for item in range(20)]
    with refused("item", 5):
        list(map_on("ray", fail, [5]))
    with pytest.raises(ZeroDivisionError):
        list(map_on("ray", fail, [0]))


def test_workers_that_are_still_starting_end_silently(cluster):
    code = "from joao.core.engines import map_on_ray; print(sorted(map_on_ray(abs, [-1], 4)))"  # two cores
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, env=os.environ | {"RAY_ADDRESS": cluster.address}, capture_output=True, text=True, check=True
    )
    assert (ended.stdout.strip(), ended.stderr) == ("[(0, 1)]", "")


def test_an_item_that_ends_every_worker_is_given_up(cluster, monkeypatch):
    monkeypatch.setattr(engines, "MOST_LOSSES", 2)
    with refused("bad", 2):
        list(map_on_ray(die, ["bad"], 1))


def test_parts_and_shards_have_the_bytes_of_one_process(cluster, table, tmp_path):
    options = {"part_rows": 30, "device": "cpu"}
    joao.embed(table, "molecules", tmp_path / "one", **options)
    written = joao.embed(table, "molecules", tmp_path / "ray", engine="ray", workers=2, **options)
    assert (len(written), written.num_failures, written.computed) == (200, 4, 7)
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")
    with refused("device", "cuda:1"):
        joao.embed(table, "molecules", tmp_path / "new", engine="ray", device="cuda:1")
    convert = lambda function, blocks: in_order(map_on("ray", function, blocks, 2))  # noqa: E731
    for name, how in (("a", map), ("b", convert)):
        source = BlockSource(table, None, Columns(), ReadOptions())
        pack_shards([source], tmp_path / name, "m", shard_graphs=40, convert=how)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.slow
def test_tasks_of_the_tables(cluster, tmp_path):
    code = "import os, pathlib, torch\npathlib.Path({!r}).write_text(f'{{os.getpid()}} {{torch.get_num_threads()}}')\n"
    paths = [tmp_path / name for name in "abc"]
    works = [code.format(str(path)) for path in paths]
    assert set(run_tasks(exec, works, jobs=None, engine="ray")) == {*works}
    assert {path.read_text().split()[1] for path in paths} == {"1"}


@pytest.mark.slow
def test_workers_nodes_and_commands_are_killed(monkeypatch):
    from repro.studies import cluster as study

    monkeypatch.setattr(study, "KILL_ROWS", 30_000)
    found = study.kills(6, seed=1)
    assert sum(found["kills"].values()) == 6
    assert [(run["code"], run["missing"], run["twice"], run["same"]) for run in found["runs"]] == [
        (0, 0, 0, True)
    ] * len(found["runs"])


@pytest.mark.slow
def test_a_users_own_pipeline(cluster):
    """As docs/scaling.md shows it."""
    pytest.importorskip("ray.data")
    rows = ray.data.from_items([{"smiles": text} for text in ["CCO", "CC", "C("] * 5])
    found = rows.map_batches(joao.Embedder, fn_constructor_kwargs={"model": "molecules"}, batch_size=4, concurrency=1)
    embeddings = {each["smiles"]: each["embedding"] for each in found.take_all()}
    expected = joao.load("molecules").transform(["CCO", "CC"])
    assert abs(embeddings["CCO"] - expected[0]).max() < 1e-5
    assert abs(embeddings["CC"] - expected[1]).max() < 1e-5
