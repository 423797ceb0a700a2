"""Are embeddings in parts complete and the same whatever dies, does their memory stay constant, and how fast are they?

    python -m repro.studies.cluster               # all of it; --only kills, memory or speed renews one of them

Needs ``joao[ray]`` and RDKit. **Kills:** a Ray cluster of a head and several nodes runs on this machine. While
``joao embed --engine ray`` works on it, a random worker, node or the command itself is killed by SIGKILL at random
moments. A killed node is replaced and a killed command is started again, until the folder is complete; it is then
compared byte for byte with that of one local process. **Memory:** the peak resident memory of one local process for two
numbers of rows. **Speed:** rows per second and CPU second of one local process and of two workers on Ray, in turn. The
machine must be idle.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from joao.core.provenance import versions
from joao.data.formats.smiles import Columns, iterate_molecule_table
from joao.data.names import resolve_path
from joao.evaluation.tables import markdown
from joao.runs.parts import encoder_of, load_model, open_sources, write_parts
from repro.studies.common import generated, make_page, origin, read_or_start, write_page, write_record

NODES, KILLS, SEED = 3, 50, 0
KINDS = ("worker", "node", "command")
KILL_ROWS, KILL_PART_ROWS = 1_500_000, 10_000
MEMORY_ROWS = (1_000_000, 10_000_000)
SPEED_ROWS, SPEED_PART_ROWS, REPEATS = 4_096, 256, 3
TINY = ["--epochs", "1", "--set", "encoder.width=4", "--set", "encoder.layers=1"]
BILLION = 1_000_000_000


def joao(*words: str | Path | int, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    return subprocess.Popen([sys.executable, "-m", "joao", *map(str, words)], env=environment, **options)


def synthetic_table(path: Path, rows: int, bad: bool = False) -> None:
    """Write molecules of three atoms; with ``bad``, every thousandth row is not a molecule."""
    draw = random.Random(SEED)
    with path.open("w", encoding="utf-8") as file:
        file.write("smiles,id\n")
        for row in range(rows):
            text = "C" + draw.choice("CNOS") + draw.choice(("C", "N", "O", "S", "F", "Cl"))
            file.write(f"{text + '(' if bad and row % 1000 == 7 else text},m{row}\n")


def tiny_encoder(folder: Path) -> Path:
    """Pre-train the smallest encoder for an epoch on a few molecules."""
    synthetic_table(folder / "few.csv", 500)
    assert joao("pretrain", folder / "few.csv", "--out", folder / "encoder", "--quiet", *TINY).wait() == 0
    return folder / "encoder"


def hashes(folder: Path) -> dict[str, str]:
    """The hash of every file of a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def count_rows(folder: Path, rows: int) -> tuple[int, int]:
    """The numbers of rows that are missing and that occur more than once, from the column ``row`` of all parts."""
    import pyarrow.parquet as parquet

    counts = np.zeros(rows, dtype=np.uint8)
    for path in sorted(folder.glob("part-*.parquet")):
        np.add.at(counts, parquet.read_table(path, columns=["row"])["row"].to_numpy(), 1)
    return int((counts == 0).sum()), int((counts > 1).sum())


def workers_of(pid: int) -> list[int]:
    """The processes of Ray actors of this package among the descendants of a process."""
    import psutil

    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if "_RayWorker" in " ".join(child.cmdline()):
                found.append(child.pid)
        except psutil.Error:
            continue
    return found


def kills(count: int, seed: int = SEED) -> dict[str, Any]:
    """Kill workers, nodes and commands ``count`` times, and compare every finished folder."""
    from ray.cluster_utils import Cluster

    draw, done = random.Random(seed), Counter[str]()
    runs: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        place = Path(name)
        encoder, table = tiny_encoder(place), place / "rows.csv"
        synthetic_table(table, KILL_ROWS, bad=True)
        words: list[str | Path | int] = ["embed", encoder, table, "--part-rows", KILL_PART_ROWS, "--quiet", "--out"]
        assert joao(*words, place / "undisturbed", "--workers", 1).wait() == 0
        expected = hashes(place / "undisturbed")
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 10**8}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        new_node = {"num_cpus": 1, "object_store_memory": 10**8}
        nodes = [cluster.add_node(**new_node) for _ in range(NODES)]
        try:
            while sum(done.values()) < count:
                out, own = place / f"run{len(runs)}", Counter[str]()
                running = None
                while True:
                    if running is None:
                        running = joao(
                            *words, out, "--engine", "ray", "--workers", NODES, env={"RAY_ADDRESS": cluster.address}
                        )
                        wait_for_part(out, running)
                    time.sleep(draw.uniform(0, 4))
                    code = running.poll()
                    if code is not None:
                        break
                    if sum(done.values()) + sum(own.values()) >= count:
                        code = running.wait()
                        break
                    kind = draw.choice(KINDS)
                    if kind == "command":
                        running.kill()
                        running.wait()
                        running = None
                    elif kind == "node":
                        cluster.remove_node(nodes.pop(draw.randrange(len(nodes))), allow_graceful=False)
                        nodes.append(cluster.add_node(**new_node))
                    elif found := workers_of(os.getpid()):
                        os.kill(draw.choice(found), signal.SIGKILL)
                    else:
                        continue  # all of them are starting
                    own[kind] += 1
                    print(f"run {len(runs)}: killed a {kind}, {len(list(out.glob('part-*')))} parts", flush=True)
                missing, twice = count_rows(out, KILL_ROWS)
                same = code == 0 and hashes(out) == expected
                runs.append({"kills": dict(own), "code": code, "missing": missing, "twice": twice, "same": same})
                print(runs[-1], flush=True)
                done += own
                shutil.rmtree(out)
        finally:
            cluster.shutdown()
    settings = {"nodes": NODES, "rows": KILL_ROWS, "part_rows": KILL_PART_ROWS, "seed": seed}
    return {**settings, "kills": dict(done), "runs": runs}


def wait_for_part(out: Path, running: subprocess.Popen[bytes]) -> None:
    """Wait until a command has written one more part: before that, it starts."""
    before = len(list(out.glob("part-*")))
    while running.poll() is None and len(list(out.glob("part-*"))) == before:
        time.sleep(0.05)


def peak_bytes(pid: int) -> int:
    """The high-water mark of the resident memory of a process; 0 if it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def memory(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Peak resident memory and CPU seconds of ``joao embed`` in one process."""
    found = []
    with TemporaryDirectory() as name:
        place = Path(name)
        encoder = tiny_encoder(place)
        for rows in sizes:
            table, out = place / "rows.csv", place / "out"
            synthetic_table(table, rows)
            started = time.monotonic()
            running = joao("embed", encoder, table, "--out", out, "--workers", 1, "--quiet")
            peak, used = 0, None
            while used is None:
                # Not ru_maxrss: a new process inherits that of the process that starts it.
                peak = max(peak, peak_bytes(running.pid))
                done, status, usage = os.wait4(running.pid, os.WNOHANG)
                used = usage if done else None
                time.sleep(0.1)
            assert status == 0
            missing, twice = count_rows(out, rows)
            figures = {"peak bytes": peak, "CPU seconds": used.ru_utime + used.ru_stime}
            found.append({"rows": rows, **figures, "seconds": time.monotonic() - started, "missing": missing})
            found[-1] |= {"twice": twice, "parts": len(list(out.glob("part-*")))}
            print(found[-1], flush=True)
            shutil.rmtree(out)
    return found


def speed(rows: int, repeats: int) -> dict[str, Any]:
    """Rows per second and per CPU second of the bundled encoder on SMILES of ZINC, between the first and last part."""
    import psutil

    smiles = next(iterate_molecule_table(resolve_path("zinc250k", None), rows, columns=Columns(tasks=()))).smiles
    found: dict[str, list[dict[str, float]]] = {"local, 1 process": [], "ray, 2 workers": []}
    with TemporaryDirectory() as name:
        place = Path(name)
        table = place / "zinc.csv"
        table.write_text("".join(f"{text}\n" for text in ["smiles", *smiles]), encoding="utf-8")
        model = load_model("molecules", "embed")

        def cpu_seconds() -> float:
            """Of this process and its workers, without Ray's services."""
            own = psutil.Process()
            workers = [each for each in own.children(recursive=True) if "_RayWorker" in " ".join(each.cmdline())]
            return sum(sum(each.cpu_times()[:2]) for each in (own, *workers))

        for repeat in range(repeats):
            for way, (engine, workers) in zip(found, (("local", 1), ("ray", 2)), strict=True):
                seen: list[tuple[float, ...]] = []

                def on_part(parts: int, rows: int, seen: list[tuple[float, ...]] = seen) -> None:
                    seen.append((rows, time.monotonic(), cpu_seconds()))

                write_parts(
                    open_sources(str(table), Columns(tasks=())),
                    model,
                    place / f"{engine}{repeat}",
                    engine=engine,
                    workers=workers,
                    device="cpu",
                    part_rows=SPEED_PART_ROWS,
                    on_part=on_part,
                )
                names = ("rows", "seconds", "CPU seconds")
                found[way].append(dict(zip(names, np.subtract(seen[-1], seen[0]).tolist(), strict=True)))
                print(way, found[way][-1], flush=True)
        same = all(hashes(place / f"local{each}") == hashes(place / f"ray{each}") for each in range(repeats))
    dimensions = encoder_of(model).encoder.embedding_size
    return {"load": os.getloadavg()[0], "same": same, "dimensions": dimensions, "ways": found}


def rates(record: dict[str, Any], per: str) -> dict[str, float]:
    """Median rows per second or CPU second of each way."""
    ways = record["speed"]["ways"]
    return {way: statistics.median(each["rows"] / each[per] for each in runs) for way, runs in ways.items()}


def speed_up(record: dict[str, Any]) -> float:
    """Two workers over one process, by the clock."""
    local, ray = rates(record, "seconds").values()
    return ray / local


def kills_line(record: dict[str, Any]) -> str:
    """One sentence about the kills."""
    found = record["kills"]
    runs, count = found["runs"], sum(found["kills"].values())
    each = ", ".join(f"{found['kills'].get(kind, 0)} {kind}s" for kind in KINDS)
    lost, twice = (sum(run[key] for run in runs) for key in ("missing", "twice"))
    return (
        f"{count} kills ({each}) in {len(runs)} runs of {found['rows']:,} rows on {found['nodes']} nodes: {lost} rows lost, "
        f"{twice} twice, {sum(run['same'] for run in runs)} of {len(runs)} folders equal to that of one process, byte for byte."
    )


def memory_table(record: dict[str, Any]) -> str:
    lines = [
        [
            f"{row['rows']:,}",
            str(row["parts"]),
            f"{row['peak bytes'] / 1e6:,.0f}",
            f"{row['rows'] / row['CPU seconds']:,.0f}",
            str(row["missing"]),
            str(row["twice"]),
        ]
        for row in record["memory"]
    ]
    return markdown(["rows", "parts", "peak memory, MB", "rows per CPU second", "rows lost", "twice"], lines)


def speed_table(record: dict[str, Any]) -> str:
    clock, cpu = rates(record, "seconds"), rates(record, "CPU seconds")
    return markdown(
        ["", "rows per second", "rows per CPU second"],
        [[way, f"{clock[way]:,.0f}", f"{cpu[way]:,.0f}"] for way in clock],
    )


def cost(record: dict[str, Any]) -> str:
    """What a billion molecules take, from the measured rate per CPU second."""
    per_core = rates(record, "CPU seconds")["ray, 2 workers"]
    hours = BILLION / per_core / 3600
    lines = [[f"{cores:,}", f"{hours / cores:,.1f}"] for cores in (16, 64, 256)]
    dimensions = record["speed"]["dimensions"]
    terabytes = BILLION * dimensions * 4 / 1e12
    return "\n\n".join(
        [
            f"One core embeds {per_core:,.0f} SMILES per CPU second with the bundled encoder ({dimensions:,} dimensions), reading and writing included, so a billion molecules take "
            f"{hours:,.0f} core hours and up to {terabytes:.1f} TB of disk (before compression); at a price p per core hour, the computing costs {hours:,.0f} p. If the speed grows with the number of cores, which we have not measured beyond two workers, up to the few hundred that one command can feed:",
            markdown(["cores", "hours"], lines),
        ]
    )


def figures(record: dict[str, Any]) -> str:
    """The figures of docs/scaling.md."""
    local, ray = rates(record, "seconds").values()
    return "\n".join(
        [
            f"- {kills_line(record)}",
            f"- Peak memory of one process: {memory_line(record)}.",
            f"- Bundled encoder, SMILES of ZINC: {local:,.0f} rows per second in one process, {ray:,.0f} with two workers on Ray, "
            f"which is {speed_up(record):.2f} times as fast (asked: 1.7; two cores of {record['sources']['speed']['processor']}).",
            "",
            cost(record),
        ]
    )


def memory_line(record: dict[str, Any]) -> str:
    """Peaks by number of rows, in words."""
    rows, peaks = record["memory"], [row["peak bytes"] for row in record["memory"]]
    listed = ", ".join(f"{row['peak bytes'] / 1e6:,.0f} MB for {row['rows']:,} rows" for row in rows)
    return f"{listed} (largest / smallest: {max(peaks) / min(peaks):.3f})"


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    found, where = record["versions"], record["sources"]
    made = ", ".join(f"{part} {where[part]['source']} on {where[part]['processor']}" for part in where)
    return make_page(
        "Embedding in parts, on one machine and on Ray",
        f"{generated('cluster')} joao {found['joao']} (source of {made}), torch {found['torch']}, Ray {record['ray']}, "
        f"pyarrow {record['pyarrow']}, {record['machine']['cores']} cores.",
        "## Kills",
        kills_line(record)
        + " The nodes are processes of one machine. Each run was killed repeatedly until it was complete. "
        "Every thousandth row is not a molecule.",
        "## Memory",
        "`joao embed --workers 1` of molecules with three atoms, with the smallest encoder, from a CSV file: "
        f"{memory_line(record)}.",
        memory_table(record),
        "## Speed",
        f"`joao embed molecules` of {record['speed']['ways']['local, 1 process'][0]['rows']:,.0f} SMILES of ZINC, medians of "
        f"{len(record['speed']['ways']['local, 1 process'])} runs in turn, without the start of the processes. "
        f"Load of the machine at the end: {record['speed']['load']:.1f}.",
        speed_table(record),
        f"Two workers over one process, by the clock: {speed_up(record):.2f}. Asked: 1.7.",
        "## A billion molecules",
        cost(record),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--only", choices=("kills", "memory", "speed"))
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--rows", type=lambda text: [int(each) for each in text.split(",")], default=MEMORY_ROWS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    parts: dict[str, Callable[[], Any]] = {
        "kills": lambda: kills(given.kills),
        "memory": lambda: memory(given.rows),
        "speed": lambda: speed(SPEED_ROWS, given.repeats),
    }
    new = {name: make() for name, make in parts.items() if given.only in (None, name)}
    record = read_or_start("cluster")
    if "memory" in new:  # rows of other sizes stay
        by_size = {row["rows"]: row for row in [*record.get("memory", []), *new["memory"]]}
        new["memory"] = [by_size[rows] for rows in sorted(by_size)]
    about = {**origin(), "ray": version("ray")}
    made = {"source": versions()["source"], "processor": about["machine"]["processor"]}
    sources = {**record.get("sources", {}), **dict.fromkeys(new, made)}
    record = {**record, **about, "pyarrow": version("pyarrow"), "sources": sources, **new}
    write_record("cluster", record)
    if parts.keys() <= record.keys():
        write_page("cluster", page(record))


if __name__ == "__main__":
    main()
