"""Fuzz one target with coverage guidance: ``python -m fuzz.one TARGET SECONDS FOLDER``.

A fault does not stop the fuzzer. Each fault is stored once, identified by its type and the function that raised it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from random import Random

import atheris

with warnings.catch_warnings(), atheris.instrument_imports(include=["joao"], enable_loader_override=False):
    warnings.simplefilter("ignore")
    from fuzz.mutation import mutate
    from fuzz.targets import TARGETS, find_fault

    if sys.argv[1:] and sys.argv[1] not in TARGETS:
        from fuzz.runs import TARGETS  # trains a model first

# An input that takes more memory or time is a fault. The limit of an input is lower, so that a reader that does not
# draw on its budget is noticed.
MOST_MEMORY, LIMIT_OF_INPUT = 2000, "128M"  # MB
MOST_SECONDS = 20


def main(name: str, seconds: int, folder: Path) -> None:
    """Fuzz ``TARGETS[name]`` for ``seconds``; store faults and the inputs that cause them in ``folder``."""
    os.environ |= {"JOAO_CACHE": "off", "JOAO_MEMORY": LIMIT_OF_INPUT}
    warnings.simplefilter("ignore")
    logging.disable()
    target, corpus = TARGETS[name], folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    known: set[str] = set()
    place = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)) / "files"

    def one(data: bytes) -> None:
        error = find_fault(target, data, place)
        if error is None:
            return
        key = _key(error)
        if key.partition(": ")[0] not in known:
            known.add(key.partition(": ")[0])
            (folder / f"fault-{hashlib.sha256(key.encode()).hexdigest()[:8]}").write_bytes(data)
            with (folder / "faults.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"fault": key, "bytes": len(data)}) + "\n")

    limits = [f"-rss_limit_mb={MOST_MEMORY}", f"-timeout={MOST_SECONDS}", f"-max_total_time={seconds}"]
    others = ["-max_len=16384", "-len_control=0", "-print_final_stats=1", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], *limits, *others, str(corpus)], one, custom_mutator=_mutate)
    atheris.Fuzz()


def _mutate(data: bytes, most: int, seed: int) -> bytes:
    return mutate(data, Random(seed), lambda some: bytes(atheris.Mutate(some, len(some) + 16)), most)


def _key(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/joao/" in frame.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "outside joao"
    return f"{type(error).__name__} in {where}: {' '.join(str(error).split())[:120]}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
