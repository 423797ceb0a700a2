"""Fuzzes one target, guided by coverage, and writes down what it finds: ``python -m fuzz.one TARGET SECONDS FOLDER``.

A fault does not stop it; each is kept once, by its kind and the line of joao that it came from.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from random import Random

import atheris

with warnings.catch_warnings(), atheris.instrument_imports(include=["joao"], enable_loader_override=False):
    warnings.simplefilter("ignore")
    from fuzz.targets import TARGETS, fault

    if sys.argv[1:] and sys.argv[1] not in TARGETS:
        from fuzz.runs import TARGETS  # trains one first

MOST_MEMORY = 3000  # MB; with more than that, or more seconds for one input, the process ends with a fault
MOST_SECONDS = 20
_WORD = re.compile(rb"-?[0-9][0-9.e+-]*|[A-Za-z_]+|\"[^\"]*\"|[][{},]|\n")
_ODD = (
    b"0", b"-1", b"1", b"2147483648", b"-9223372036854775808", b"9223372036854775807", b"18446744073709551616",
    b"1e400", b"NaN", b"-Infinity", b"1.5", b"1_0", b"null", b"true", b"[]", b"{}", b'""', b'"\\ud800"', b"[[", b"\n",
    b"\xff", b"\xef\xbb\xbf", b"\x00", b",", b" ", b"=", b"999999999999999999999999", b"'", b'"', b"<!ENTITY a 'b'>",
)  # fmt: skip


def main(name: str, seconds: int, folder: Path) -> None:
    """Runs ``TARGETS[name]`` for ``seconds``; faults and the inputs that cause them go into ``folder``."""
    os.environ["JOAO_CACHE"] = "off"
    warnings.simplefilter("ignore")
    logging.disable()
    target, corpus = TARGETS[name], folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    known: set[str] = set()
    place = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)) / "files"

    def one(data: bytes) -> None:
        error = fault(target, data, place)
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
    atheris.Setup([sys.argv[0], *limits, *others, str(corpus)], one, custom_mutator=changed)
    atheris.Fuzz()


def changed(data: bytes, most: int, seed: int) -> bytes:
    """Every other time a number, word or bracket of a text becomes another one; else whatever the fuzzer does."""
    random = Random(seed)
    words = list(_WORD.finditer(data))
    if random.random() < 0.5 or not words:
        return bytes(atheris.Mutate(data, len(data)))
    word = random.choice(words)
    new = random.choice(_ODD) if random.random() < 0.7 else random.choice(words)[0]
    return (data[: word.start()] + new + data[word.end() :])[:most]


def _key(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/joao/" in frame.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "outside joao"
    return f"{type(error).__name__} in {where}: {' '.join(str(error).split())[:120]}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
