"""Benchmark records as lines of tables."""

from collections.abc import Mapping
from typing import Any

from joao.evaluation.tables import markdown

ROWS_HEADER = ("", "ms per step (min to max)", "CPU ms", "graphs/s", "GFLOP/s", "GB/s", "peak MB")
PARTS_HEADER = ("part of a step", "ms (min to max)", "CPU ms")


def setting_line(setting: Mapping[str, Any]) -> str:
    """Return the machine as one line."""
    machine, roof = setting["machine"], setting["roof"]
    threads = f"{machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"
    where = f"{machine['gpu']}, host {threads}" if "gpu" in machine else f"{machine['processor']}, {threads}"
    return f"{where}; measured: {roof['GFLOP/s']:,.0f} GFLOP/s (product of matrices), {roof['GB/s']:,.0f} GB/s (copy)"


def workload_line(workload: Mapping[str, Any]) -> str:
    """The graphs, the model and the work in one line."""
    work = workload["work of a step"]["GraphCL"]
    return (
        f"{workload['name']} ({workload['origin']}): {workload['graphs']:,} graphs, "
        f"{workload['nodes per graph']:.1f} nodes and {workload['directed edges per graph'] / 2:.1f} edges each, "
        f"{workload['features']} features; {workload['encoder']}, {workload['precision']}, {workload['batches']} "
        f"batches of {workload['batch size']}; a step on two views is {figure(work['flop'] / 1e9)} GFLOP and "
        f"{figure(work['bytes'] / 1e6)} MB"
    )


def row_lines(workload: Mapping[str, Any]) -> list[list[str]]:
    """Under :data:`ROWS_HEADER`."""
    return [
        [
            name,
            spread(row["ms per step"]),
            figure(row["CPU ms per step"]["median"]),
            f"{row['graphs per second']:,.0f}",
            f"{row['GFLOP/s']:,.1f}" if "GFLOP/s" in row else "",
            f"{row['GB/s']:,.1f}" if "GB/s" in row else "",
            "" if row["peak bytes"] is None else f"{row['peak bytes'] / 1e6:,.0f}",
        ]
        for name, row in workload["rows"].items()
    ]


def ratio_lines(workload: Mapping[str, Any], machine: Mapping[str, Any]) -> list[str]:
    """One comparison a line, with that of CPU time where it says something, and what was not measured."""
    by_cpu = workload["ratios of CPU time"] if machine["device"] == "cpu" and machine["threads"] == 1 else {}
    lines = [
        f"{name}: {spread(value)}" + (f"; of CPU time {spread(by_cpu[name])}" if by_cpu else "")
        for name, value in workload["ratios"].items()
    ]
    return lines + [f"{name}: not measured, {why}" for name, why in workload["not measured"].items()]


def part_lines(workload: Mapping[str, Any]) -> list[list[str]]:
    """Under :data:`PARTS_HEADER`."""
    return [[name, spread(part["ms"]), figure(part["CPU ms"]["median"])] for name, part in workload["parts"].items()]


def growth_table(axis: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and lines: milliseconds (median) at every size, and the fitted exponent."""
    sizes, clock = axis["sizes"], "CPU ms" if axis["clock"] == "cpu" else "ms"
    header = [f"{clock} at {axis['against']}", *(f"{size:,.0f}" for size in sizes), "exponent"]
    lines = [
        [name, *(figure(1000 * each) for each in medians), f"{axis['fits'][name]['exponent']:.2f}"]
        for name, medians in axis["medians"].items()
    ]
    memory = axis["peak bytes, graphs included"]
    if "peak memory" in axis["fits"]:
        exponent = f"{axis['fits']['peak memory']['exponent']:.2f}"
        lines.append(["peak memory, MB", *(figure(each / 1e6) for each in memory), exponent])
    return header, lines


def fit_line(axis: Mapping[str, Any]) -> str:
    """Which sizes the exponents are fitted on."""
    fit = next(iter(axis["fits"].values()))
    return f"Exponents: least squares in logarithms, on the sizes from {fit['smallest']:,.0f} to {fit['largest']:,.0f}."


def svm_lines(svm: Mapping[str, Any]) -> list[str]:
    """The SVM protocol beside a plain grid search."""
    seconds = {name: sum(turns) for name, turns in svm["seconds of each turn"].items()}
    same = "identical" if svm["identical"] else "DIFFER"
    lines = [
        f"SVM protocol, {svm['folds']} outer folds of {svm['data']}'s embeddings "
        f"({svm['graphs']:,} x {svm['dimensions']}); scores and choices {same}",
        ", ".join(f"{name}: {figure(each)} s" for name, each in seconds.items()),
    ]
    return lines + [f"{name}: {figure(ratio)}" for name, ratio in svm["times faster"].items()]


def reading_lines(reading: Mapping[str, Any]) -> list[str]:
    """Seconds to have each data set at hand, start of the program included."""
    return [
        f"reading {name}: "
        + ", ".join(
            f"{way} {each}" if way == "not measured" else f"{way} {figure(each['seconds'])} s"
            for way, each in ways.items()
        )
        for name, ways in reading.items()
    ]


def spread(value: Mapping[str, float]) -> str:
    """The median with the least and the most.

    >>> spread({"median": 2.0, "least": 1.5, "most": 12.25})
    '2.00 (1.50 to 12.2)'
    """
    return f"{figure(value['median'])} ({figure(value['least'])} to {figure(value['most'])})"


def figure(value: float) -> str:
    """Three digits that count.

    >>> [figure(value) for value in (0.01234, 1.2, 45.67, 12345.6)]
    ['0.0123', '1.20', '45.7', '12,346']
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def page_table(record: Mapping[str, Any]) -> str:
    """The rows of all workloads of a record, and their comparisons, as Markdown for a page."""
    header = ["", "ms per step (min to max)", "graphs/s", "GFLOP/s", "GB/s", "peak MB"]
    parts = []
    for setting in record["settings"]:
        parts.append(f"`{record['command']}`. {setting_line(setting)}.")
        for workload in setting["workloads"]:
            lines = [[name, ms, *rest] for name, ms, _, *rest in row_lines(workload)]
            ratios = [f"- {line}" for line in ratio_lines(workload, setting["machine"])]
            parts += [f"**{workload_line(workload)}.**", markdown(header, lines), "\n".join(ratios)]
    return "\n\n".join(parts)


def exponent_table(scaling: Mapping[str, Any]) -> str:
    """The fitted exponent of everything that was measured on every axis, as Markdown."""
    lines = [
        [f"{axis} ({each['fits'][name]['smallest']:,.0f} to {each['fits'][name]['largest']:,.0f})", name, f"{fit:.2f}"]
        for axis, each in scaling.items()
        for name, fit in ((name, values["exponent"]) for name, values in each["fits"].items())
    ]
    return markdown(["against", "of", "exponent"], lines)
