"""Does the learned table agree with the rules of thumb that the paper says it recovers?

    python studies/learned_table.py results/learned-table.md

Reads the records of `joao reproduce unsupervised`. A share is that of views made by an augmentation over the whole
training, both sides counted; under the uniform law each has 0.20. Means over five seeds, with the least and the most.
"""

from __future__ import annotations

import numpy as np

from joao.core.pair_table import PairTable
from joao.evaluation.tables import markdown
from repro.protocols.unsupervised.run import Cell, grid, record_file
from repro.record_files import RECORDS
from repro.studies.common import write_page

DATASETS = ("NCI1", "PROTEINS", "COLLAB", "REDDIT-BINARY")


def tables(dataset: str) -> list[PairTable]:
    """The share of graphs shown under each pair, a table a seed."""
    cells = [Cell(dataset, "joao", seed) for seed in grid()["seeds"]]
    records = [record["policy"] for cell in cells if (record := record_file(RECORDS).get(cell.key)) is not None]
    found = [(record["augmentations"], np.array(record["drawn"])) for record in records]
    if not found:
        raise SystemExit(f"no records of JOAO on {dataset} in {RECORDS}")
    return [PairTable.of(names, drawn / drawn.sum()) for names, drawn in found]


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def finding(claim: str, share: dict[str, float], named: tuple[str, ...], uniform: float) -> str:
    """A claim about the sets ``named``, read in two ways: against the uniform law, and against the other sets."""
    others = [dataset for dataset in DATASETS if dataset not in named]
    more_than_uniform = min(share[d] for d in named) > uniform
    more_than_elsewhere = min(share[d] for d in named) > max(share[d] for d in others)
    figures = ", ".join(f"{d} {share[d]:.2f}" for d in (*named, *others))
    return (
        f"{claim}. More than under the uniform law ({uniform:.2f}): {verdict(more_than_uniform)}. "
        f"More than on the other sets: {verdict(more_than_elsewhere)}. {figures}."
    )


def verdict(holds: bool) -> str:
    return "**holds**" if holds else "**does not hold here**"


def page() -> str:
    shares = {dataset: [table.by_augmentation() for table in tables(dataset)] for dataset in DATASETS}
    same = {dataset: [float(np.trace(table.values)) for table in tables(dataset)] for dataset in DATASETS}
    names = list(shares["NCI1"][0])
    mean = {d: {name: float(np.mean([each[name] for each in shares[d]])) for name in names} for d in DATASETS}
    lines = [
        [d, str(len(shares[d])), *(spread([each[n] for each in shares[d]]) for n in names), spread(same[d])]
        for d in DATASETS
    ]
    cut = {d: mean[d]["node_drop"] + mean[d]["subgraph"] for d in DATASETS}
    mask = {d: mean[d]["attribute_mask"] for d in DATASETS}
    edge = {d: mean[d]["edge_perturb"] for d in DATASETS}
    findings = [
        finding("1. NodeDrop and Subgraph are favoured on molecules", cut, ("NCI1", "PROTEINS"), 0.4),
        finding("2. AttrMask is favoured on dense graphs", mask, ("COLLAB",), 0.2),
        finding("3. EdgePert is favoured on social networks", edge, ("COLLAB", "REDDIT-BINARY"), 0.2),
    ]
    header = ["data", "seeds", *names, "the same twice"]
    return "\n".join(
        [
            "# The learned table against the rules of thumb\n",
            "Made by `python studies/learned_table.py`; not to be edited. Shares of views by JOAO with the settings of the "
            "paper's unsupervised table; COLLAB and REDDIT-BINARY have constant features, on which AttrMask is noise.\n",
            markdown(header, lines) + "\n",
            *findings,
            "",
        ]
    )


def main() -> None:
    write_page("learned-table", page())


if __name__ == "__main__":
    main()
