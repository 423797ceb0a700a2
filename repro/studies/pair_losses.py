"""How far do the losses of pairs of augmentations differ, under each objective?

    OMP_NUM_THREADS=1 JOAO_DATA=... python studies/pair_losses.py results/pair-losses.json results/pair-losses.md

JOAO with its defaults, seed 0, on the development sets, but with a step so short that all pairs stay equally likely.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import joao
from joao.core.provenance import command, machine, versions
from joao.evaluation.tables import markdown
from repro.studies.common import write_page, write_record

SETS = ("MSRC_9", "MSRC_21", "COX2", "DHFR", "Mutagenicity")
OBJECTIVES = ("nt_xent", "jensen_shannon", "barlow_twins", "bootstrap")


def spread(objective: str, name: str) -> float:
    """The standard deviation over pairs, mean over epochs."""
    policy = {"name": "min_max", "step": 1e-12}
    model = joao.JOAO(objective=objective, policy=policy, device="cpu").fit(joao.read(name))
    losses = np.array([epoch.pair_losses for epoch in model.history_])
    return float(losses.std(axis=(1, 2)).mean())


def page(record: dict[str, Any]) -> str:
    """The record as a table; the last column is the median over the sets of what a loss has beside NT-Xent's."""
    found = record["deviation"]
    first = np.array([found["nt_xent"][name] for name in SETS])
    lines = []
    for objective, of_set in found.items():
        row = np.array([of_set[name] for name in SETS])
        lines.append([f"`{objective}`", *(f"{each:.3f}" for each in row), f"{np.median(row / first):.2g}"])
    made, machine_of = record["versions"], record["machine"]
    parts = [
        "# How far pair losses differ",
        f"Made by `python studies/{record['command']}`; not to be edited. JOAO with its defaults, seed 0, 20 epochs, all "
        f"pairs equally likely throughout; joao {made['joao']}, {machine_of['processor']}. Standard deviation over the 25 "
        "pairs, mean over epochs; beside `nt_xent`: median over the sets.",
        markdown(["", *SETS, "relative to `nt_xent`"], lines),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    record = {
        "deviation": {objective: {name: spread(objective, name) for name in SETS} for objective in OBJECTIVES},
        "command": command(),
        "versions": versions(),
        "machine": machine("cpu"),
    }
    write_record("pair-losses", record)
    write_page("pair-losses", page(record))


if __name__ == "__main__":
    main()
