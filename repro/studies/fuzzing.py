"""The page of the fuzzing records, which ``python -m fuzz.run`` adds (``make fuzz``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from joao.evaluation.tables import markdown, plain_text


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: executions and faults of each run, and of each target in all runs and in the last one."""
    runs = [
        [each["when"][:10], f"{each['executions']:,}", f"{each['seconds']:,}", str(each["faults"])] for each in records
    ]
    last = records[-1]["targets"]
    lines = []
    for name in dict.fromkeys(name for record in records for name in record["targets"]):
        found = [record["targets"][name] for record in records if name in record["targets"]]
        faults = [fault for each in found for fault in each["faults"]]
        lines.append(
            [
                f"`{name}`",
                f"{sum(each['executions'] for each in found):,}",
                f"{last[name]['executions']:,}" if name in last else "",
                str(len(faults)),
                str(len(last[name]["faults"])) if name in last else "",
            ]
        )
    remaining = [f"- `{name}`: {plain_text(fault)}" for name, each in last.items() for fault in each["faults"]]
    total = sum(each["executions"] for each in records)
    return (
        "\n\n".join(
            [
                "# Fuzzing",
                "Generated from `repro/records` by `python -m repro docs`. Do not edit. Compute: `make fuzz`.",
                f"{total:,} executions in {len(records)} runs. A fault is any outcome but valid graphs, a loaded model or an error of one line, "
                "and any input that takes 20 seconds or more memory than the limit of the process. Faults of earlier runs are fixed.",
                markdown(["run", "executions", "seconds", "faults"], runs),
                markdown(["target", "executions", "in the last run", "faults", "in the last run"], lines),
                *(["Faults of the last run:", "\n".join(remaining)] if remaining else []),
            ]
        )
        + "\n"
    )
