"""All commands of ``python -m repro``."""

from __future__ import annotations

from repro.cli.bench import bench
from repro.cli.protocols import app as app
from repro.cli.results import results

app.command("tables")(results)
app.command()(bench)
