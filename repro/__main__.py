"""``python -m repro``: the paper's tables, figures and benchmarks."""

from joao.cli.main import run
from repro.cli.main import app

if __name__ == "__main__":
    run(app, "repro")
