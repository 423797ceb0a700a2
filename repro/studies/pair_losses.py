"""How much do the losses of augmentation pairs differ under each objective?

    OMP_NUM_THREADS=1 python -m repro.studies.pair_losses

JOAO with its older default settings, seed 0, on the development data sets, with a step so small that all pairs stay
equally likely.
"""

from typing import Any

import numpy as np

import joao
from joao.evaluation.tables import markdown
from repro.studies.common import OLDER_DEFAULT, generated, make_page, origin, publish

SETS = ("MSRC_9", "MSRC_21", "COX2", "DHFR", "Mutagenicity")
OBJECTIVES = ("nt_xent", "jensen_shannon", "barlow_twins", "bootstrap")


def spread(objective: str, name: str) -> float:
    """Return the standard deviation over pairs, as mean over epochs."""
    policy = {"name": "min_max", "step": 1e-12}
    model = joao.JOAO(**OLDER_DEFAULT, objective=objective, policy=policy, device="cpu").fit(joao.read(name))
    losses = np.array([epoch.pair_losses for epoch in model.history_])
    return float(losses.std(axis=(1, 2)).mean())


def page(record: dict[str, Any]) -> str:
    """Return the page of a record; the last column is the median over data sets of the ratio to NT-Xent."""
    found = record["deviation"]
    first = np.array([found["nt_xent"][name] for name in SETS])
    lines = []
    for objective, of_set in found.items():
        row = np.array([of_set[name] for name in SETS])
        lines.append([f"`{objective}`", *(f"{each:.3f}" for each in row), f"{np.median(row / first):.2g}"])
    made, machine_of = record["versions"], record["machine"]
    return make_page(
        "Differences between pair losses",
        f"{generated('pair_losses')} JOAO with the default settings until 2026-11-18, seed 0, 20 epochs, all pairs equally likely throughout; "
        f"joao {made['joao']}, {machine_of['processor']}. Standard deviation over the 25 pairs, mean over epochs. Relative to "
        "`nt_xent`: median over the data sets.",
        markdown(["", *SETS, "relative to `nt_xent`"], lines),
    )


def main() -> None:
    record = {
        "deviation": {objective: {name: spread(objective, name) for name in SETS} for objective in OBJECTIVES},
        **origin(),
    }
    publish("pair-losses", record, page)


if __name__ == "__main__":
    main()
