"""Are the scores of the compiled core those of the plain path, within the deviation over seeds?

    python -m repro.studies.compiled_core

Five data sets, five seeds, `JOAO()` with its older default settings on both paths in turn; seed s is scored on partition s. The
rule is in repro/decision-rules.md. Runs that are in the record are not repeated.
"""

import os
import time
from typing import Any

import numpy as np

from joao.config.recipe import make_recipe
from joao.data import read_whole
from joao.evaluation.tables import markdown
from joao.runs.pretraining import pretrain
from repro.studies.common import (
    OLDER_DEFAULT,
    generated,
    make_page,
    origin,
    read_or_start,
    score_rows,
    write_page,
    write_record,
)

NAMES = ("MUTAG", "PROTEINS", "DHFR", "MSRC_9", "COX2")
SEEDS = range(5)
PATHS = {"plain": False, "compiled": True}


def main() -> None:
    record = read_or_start("compiled-core", rows=[])
    done = {(row["data"], row["seed"], row["path"]) for row in record["rows"]}
    os.environ["JOAO_NATIVE"] = "avx512"
    for name in NAMES:
        dataset = read_whole(name)
        for seed in SEEDS:
            for path, fast in PATHS.items():
                if (name, seed, path) in done:
                    continue
                started = time.process_time()
                recipe = make_recipe({**OLDER_DEFAULT, "method": "joao", "training": {"seed": seed}})
                trained = pretrain(recipe, dataset, device="cpu", fast=fast)
                seconds = time.process_time() - started
                assert bool(trained.info.compiled) == fast
                scores = score_rows(trained.embed(dataset).numpy(), dataset, seed)
                row = {"data": name, "seed": seed, "path": path, "accuracy": scores.mean, "CPU seconds": seconds}
                record["rows"].append({**row, "level": trained.info.compiled, "loss": trained.metrics[-1].loss})
                record |= origin()
                write_record("compiled-core", record)
                print(row, flush=True)
    write_page("compiled-core", page(record))


def accuracies(record: dict[str, Any], name: str, path: str) -> np.ndarray[Any, Any]:
    """Return the accuracies of a path in per cent, by seed."""
    rows = {row["seed"]: row["accuracy"] for row in record["rows"] if (row["data"], row["path"]) == (name, path)}
    return 100 * np.array([rows[seed] for seed in sorted(rows)])


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    lines, agree = [], []
    for name in dict.fromkeys(row["data"] for row in record["rows"]):
        plain, compiled = (accuracies(record, name, path) for path in PATHS)
        deviations, difference = [each.std(ddof=1) for each in (plain, compiled)], compiled.mean() - plain.mean()
        agree.append(abs(difference) <= max(deviations))
        texts = [
            f"{each.mean():.2f} ± {deviation:.2f}"
            for each, deviation in zip((plain, compiled), deviations, strict=True)
        ]
        lines.append([name, str(len(plain)), *texts, f"{difference:+.2f}", "yes" if agree[-1] else "no"])
    header = ["data", "seeds", "plain path %", "compiled core %", "difference", "within the deviation"]
    return make_page(
        "Accuracy in the compiled core",
        f"{generated('compiled_core')} Accuracy of `JOAO()` with the default settings until 2026-11-18, mean and standard deviation over seeds. "
        f"*Within the deviation*: by the rule of `repro/decision-rules.md`, on {sum(agree)} of {len(agree)} data sets.",
        markdown(header, lines),
    )


if __name__ == "__main__":
    main()
