"""Compile the C++ sources of ``src/joao/kernels/_native``: a build hook of hatchling, and ``make native``.

The result has a plain C interface and is loaded with ctypes, so building it needs a C++ compiler and nothing else, and
one file serves all versions of Python. Without a compiler the package is pure Python and trains on torch alone.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script

    class BuildHookInterface:  # type: ignore[no-redef]
        pass


SOURCES = Path(__file__).parent / "src/joao/kernels/_native"
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
LINK = ("-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
# One library for each level of instructions; the loader takes the highest one that the processor has.
# cpu.cpp asks for the same extensions.
AVX2 = ("-mavx2", "-mfma")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")
X86_LEVELS: dict[str, tuple[str, ...]] = {"baseline": (), "avx2": AVX2, "avx512": AVX512}


def is_fresh() -> bool:
    """Whether all libraries are newer than their sources: an editable install calls the hook twice."""
    libraries = [path.stat().st_mtime for path in SOURCES.glob("*.so")]
    sources = [path.stat().st_mtime for path in (*SOURCES.glob("*.cpp"), Path(__file__))]
    return bool(libraries) and min(libraries) > max(sources)


def build() -> str:
    """Compile all libraries into the folder of the sources; returns why it was not possible, or an empty string."""
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    levels = X86_LEVELS if platform.machine().lower() in ("x86_64", "amd64") else {"baseline": ()}
    files = sorted(map(str, SOURCES.glob("*.cpp")))
    try:
        for old in SOURCES.glob("*.so"):
            old.unlink()
        with tempfile.TemporaryDirectory(dir=SOURCES) as folder:
            for level, extensions in levels.items():
                command = [*compiler, *FLAGS, *extensions, *LINK, *files, "-o", f"{folder}/{level}.so"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    return f"{shlex.join(command)}: {done.stderr.strip() or done.returncode}"
            for level in levels:  # all or none
                os.replace(f"{folder}/{level}.so", SOURCES / f"{level}.so")
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Put the compiled libraries into a wheel, or beside their sources in an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        failure = "" if is_fresh() else build()
        if failure:
            self.app.display_warning(f"joao is built without its compiled core: {failure}")
            return
        build_data["artifacts"].append("src/joao/kernels/_native/*.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


if __name__ == "__main__":
    sys.exit(build() or None)
