"""All commands of ``python -m repro``."""

from repro.cli.bench import bench
from repro.cli.pages import check, docs, figure_3, tables
from repro.cli.protocols import app as app
from repro.cli.protocols import everything

app.command("figure-3")(figure_3)
app.command("all")(everything)
app.command()(check)
app.command()(tables)
app.command()(docs)
app.command()(bench)
