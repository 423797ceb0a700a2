"""Neighbours of molecules by the bundled encoder and by fingerprints: which are more alike in activity?

    python -m repro.studies.neighbors

The rule is in ``repro/decision-rules.md``.
"""

from pathlib import Path
from typing import Any

import numpy as np

from joao.core.provenance import versions
from joao.core.randomness import numpy_generator
from joao.evaluation.tables import markdown
from joao.runs.neighbors import SIMILARITIES, neighbors
from repro.record_files import RECORDS
from repro.studies.common import parse_options
from repro.studies.molecule_tables import SETS, load
from repro.studies.sweep import interval, record_file

FILE = RECORDS / "neighbors.jsonl"
K, FEWEST_SETS = 5, 10


def compute(name: str, root: Path | None) -> dict[str, Any]:
    """The mean absolute difference in activity to the nearest training molecules, in standard deviations."""
    dataset, split, _, learn, _ = load(name, root)
    assert dataset.targets is not None
    labels = dataset.targets[:, 0]
    library, query = dataset.subset(learn), dataset.subset(split.test)
    rows = {by: neighbors(library, query, k=K, by=by, device="cpu").rows for by in SIMILARITIES}
    rows["random"] = numpy_generator(0, "random neighbours").integers(0, len(learn), (len(split.test), K))
    differences = {
        by: float(abs(labels[learn][each] - labels[split.test][:, None]).mean() / labels[learn].std())
        for by, each in rows.items()
    }
    return {
        "cell": {"dataset": name},
        "differences": differences,
        "sizes": [len(learn), len(split.test)],
        "versions": versions(),
    }


def block() -> str:
    """The table in docs/molecules.md."""
    found = {record["cell"]["dataset"]: record["differences"] for record in record_file(FILE).read()}
    sets = [name for name in SETS if name in found]
    if len(sets) < FEWEST_SETS:
        return f"The study is not finished ({len(sets)} of {len(SETS)} sets)."
    rows = [
        [title, f"{np.mean([found[name][by] for name in sets]):.3f}"]
        for by, title in {**SIMILARITIES, "random": "random training molecules"}.items()
    ]
    gain = interval([found[name]["encoder"] - found[name]["ecfp"] for name in sets])
    wins = sum(found[name]["encoder"] < found[name]["ecfp"] for name in sets)
    missing = [name for name in SETS if name not in found]
    return "\n\n".join(
        [
            markdown(["neighbours by", "difference in activity"], rows),
            f"Mean absolute difference in activity between a test molecule and its five nearest training molecules, in standard deviations of the training labels; mean over {len(sets)} development sets with published splits (`python -m repro.studies.neighbors`). "
            f"Encoder - ECFP: {gain.mean:+.3f} (95 % interval over sets {gain.low:+.3f} to {gain.high:+.3f}); the encoder's difference is smaller on {wins} of them."
            + (f" Missing: {', '.join(missing)}." if missing else ""),
        ]
    )


def main() -> None:
    given, records = parse_options(__doc__, data_root=Path), record_file(FILE)
    done = {each["cell"]["dataset"] for each in records.read()}
    for name in SETS:
        if name not in done:
            records.write(compute(name, given.data_root))
            print(name, flush=True)


if __name__ == "__main__":
    main()
