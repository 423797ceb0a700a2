"""The page of all benchmark records, which starts with our targets: ``python -m repro.studies.benchmark_tables``."""

import json
from typing import Any

from joao.evaluation.tables import markdown
from repro.benchmarks.rivals import GEOMETRIC
from repro.record_files import RECORDS
from repro.studies.common import make_page, write_page
from repro.tables.benchmarks import exponent_table, page_table, reading_lines, svm_lines

RIVAL = f"{GEOMETRIC} / JOAO step, fast"
SETS = {"NCI1": 2.4, "DD": 1.9, "REDDIT-BINARY": 1.7, "COLLAB": 8.0}  # with the least ratio to the rival
FLOOR, SCATTER = "GraphCL step / GraphCL floor", "GraphCL floor, scatter / GraphCL floor"


def targets_table(records: dict[str, Any]) -> str:
    """Return our targets and the measured figures."""
    cpu = records["cpu-1-thread"]["settings"][0]
    core = records["cpu-compiled"]["settings"][0]
    tf32, plain = (records[name]["settings"][0] for name in ("gpu-h200-tf32", "gpu-h200"))
    svm = cpu["svm"]["times faster"]
    growth = cpu["scaling"]["nodes per graph"]["fits"]
    lines = [
        at_least(
            "NCI1, one thread: JOAO, graphs per CPU second",
            15_000,
            workload(core, "NCI1")["rows"]["JOAO step, fast"]["graphs per CPU second"],
        ),
        *(
            at_least(f"{name}, one thread: JOAO over GraphCL with torch-geometric", SETS[name], found)
            for name, found in over_rival(core).items()
        ),
        at_most("NCI1: step over floor", 1.10, ratio(core, "NCI1", FLOOR)),
        at_least("NCI1: scatter floor over floor", 1.5, ratio(core, "NCI1", SCATTER)),
        at_most("NCI1: JOAO step over GraphCL step", 1.20, ratio(core, "NCI1", "JOAO step / GraphCL step")),
        at_most("REDDIT-BINARY: step over floor", 1.20, ratio(core, "REDDIT-BINARY", FLOOR)),
        at_least("REDDIT-BINARY: scatter floor over floor", 1.5, ratio(core, "REDDIT-BINARY", SCATTER)),
        at_most("COLLAB: step over floor", 1.20, ratio(core, "COLLAB", FLOOR)),
        at_least("COLLAB: scatter floor over floor", 1.5, ratio(core, "COLLAB", SCATTER)),
        at_least(
            "H200, molecules, GIN 5x300, tf32: JOAO, graphs/s", 100_000, rate(tf32, "molecules", "JOAO step, fast")
        ),
        at_least("H200, NCI1, GIN 3x32, tf32: JOAO, graphs/s", 100_000, rate(tf32, "NCI1", "JOAO step, fast")),
        at_least("H200, NCI1, GIN 3x32, 32-true: JOAO, graphs/s", 100_000, rate(plain, "NCI1", "JOAO step, fast")),
        at_least("SVM protocol, two folds at a time: plain search over ours", 5, svm["plain, 1 job / ours, 2 jobs"]),
        at_least("the same, plain search with two jobs", 5, svm["plain, 2 jobs / ours, 2 jobs"]),
        at_most("exponent of a GraphCL epoch in nodes + edges", 1, growth["GraphCL, an epoch"]["exponent"]),
        at_most("exponent of a JOAO epoch in nodes + edges", 1, growth["JOAO, an epoch"]["exponent"]),
    ]
    return markdown(["", "target", "measured", ""], lines)


def over_rival(core: dict[str, Any]) -> dict[str, float]:
    """Return how many times as fast as plain torch-geometric JOAO is, in CPU time, by data set."""
    return {name: float(workload(core, name)["ratios of CPU time"][RIVAL]["median"]) for name in SETS}


def at_least(what: str, bound: float, found: float) -> list[str]:
    return [what, f"at least {bound:,}", format_figure(found, bound), "met" if found >= bound else "missed"]


def at_most(what: str, bound: float, found: float) -> list[str]:
    return [what, f"at most {bound:.2f}", format_figure(found, bound), "met" if found <= bound else "missed"]


def format_figure(value: float, bound: float) -> str:
    """Format a measured figure, with a third decimal where two would show the bound itself."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if f"{value:.2f}" == f"{bound:.2f}" else f"{value:.2f}"


def workload(setting: dict[str, Any], name: str) -> Any:
    return next(each for each in setting["workloads"] if each["name"] == name)


def ratio(setting: dict[str, Any], name: str, key: str) -> float:
    return float(workload(setting, name)["ratios"][key]["median"])


def rate(setting: dict[str, Any], name: str, row: str) -> float:
    return float(workload(setting, name)["rows"][row]["graphs per second"])


def page() -> str:
    records = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((RECORDS / "benchmarks").glob("*.json"))
    }
    parts = [
        "Generated from `repro/records/benchmarks` by `python -m repro docs`. Do not edit. Compute: `python -m repro bench`. "
        "[Explanations](../../performance.md).",
    ]
    parts += ["## Targets", targets_table(records)]
    for name, record in records.items():
        parts += [f"## {name}", page_table(record)]
        for setting in record["settings"]:
            if "scaling" in setting:
                parts.append(exponent_table(setting["scaling"]))
            for key, lines in (("svm", svm_lines), ("reading", reading_lines)):
                if key in setting:
                    parts.append("\n".join(f"- {line}" for line in lines(setting[key])))
    return make_page("Benchmarks", *parts)


if __name__ == "__main__":
    write_page("benchmarks/tables", page())
