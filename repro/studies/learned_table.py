"""What JOAO draws: the share of views of each augmentation on the data sets of the paper's Figure 3.

    python -m repro.studies.learned_table

Uses the records of the unsupervised table. A share is the share of views made by an augmentation over the whole training,
counting both views; with uniform pairs it is 0.20. Means over five seeds, with minimum and maximum.
"""

import numpy as np

from joao.core.pair_table import PairTable
from joao.evaluation.tables import markdown
from repro.protocols.unsupervised.run import Cell, grid, record_file
from repro.record_files import RECORDS
from repro.studies.common import generated, make_page, with_range, write_page

DATASETS = ("NCI1", "PROTEINS", "COLLAB", "REDDIT-BINARY")


def tables(dataset: str) -> list[PairTable]:
    """Return the share of draws of each pair, one table per seed."""
    cells = [Cell(dataset, "joao", seed) for seed in grid()["seeds"]]
    records = [record["policy"] for cell in cells if (record := record_file(RECORDS).get(cell.key)) is not None]
    found = [(record["augmentations"], np.array(record["drawn"])) for record in records]
    if not found:
        raise SystemExit(f"no records of JOAO on {dataset} in {RECORDS}")
    return [PairTable.of(names, drawn / drawn.sum()) for names, drawn in found]


def page() -> str:
    shares = {dataset: [table.by_augmentation() for table in tables(dataset)] for dataset in DATASETS}
    same = {dataset: [float(np.trace(table.values)) for table in tables(dataset)] for dataset in DATASETS}
    names = list(shares["NCI1"][0])
    lines = [
        [d, str(len(shares[d])), *(with_range([each[n] for each in shares[d]]) for n in names), with_range(same[d])]
        for d in DATASETS
    ]
    header = ["data", "seeds", *names, "same augmentation twice"]
    return make_page(
        "Learned distributions of pairs",
        f"{generated('learned_table')} Shares of views for JOAO with the settings of the paper's unsupervised table. COLLAB "
        "and REDDIT-BINARY have constant features, which AttrMask only replaces by noise.",
        markdown(header, lines),
        "Whether this agrees with what the paper reads in its Figure 3 is judged on the page of [findings](findings.md).",
    )


if __name__ == "__main__":
    write_page("learned-table", page())
