"""The page of the fuzzing records, which ``python -m fuzz.run`` adds (``make fuzz``)."""

from collections.abc import Mapping, Sequence
from typing import Any

from joao.evaluation.tables import markdown, plain_text
from repro.studies.common import make_page


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: executions and faults of each run, and of each target in all its runs and in the last one."""
    runs = [
        [each["when"][:10], f"{each['executions']:,}", f"{each['seconds']:,}", str(each["faults"])] for each in records
    ]
    lines, remaining = [], []
    for name in dict.fromkeys(name for record in records for name in record["targets"]):
        found = [record["targets"][name] for record in records if name in record["targets"]]
        executions, faults = sum(each["executions"] for each in found), sum(len(each["faults"]) for each in found)
        last = found[-1]
        lines.append([f"`{name}`", f"{executions:,}", str(faults), f"{last['executions']:,}", str(len(last["faults"]))])
        remaining += [f"- `{name}`: {plain_text(fault)}" for fault in last["faults"]]
    total = sum(each["executions"] for each in records)
    return make_page(
        "Fuzzing",
        "Generated from `repro/records` by `python -m repro docs`. Do not edit. Compute: `make fuzz`.",
        f"{total:,} executions in {len(records)} runs. A fault is any outcome but valid graphs, a loaded model or an error of one line, "
        "and any input that takes 20 seconds or more memory than the limit of the process. Faults that a later run does not find are fixed.",
        markdown(["run", "executions", "seconds", "faults"], runs),
        markdown(["target", "executions", "faults", "executions in its last run", "faults in its last run"], lines),
        *(["Faults that are left:", "\n".join(remaining)] if remaining else []),
    )
