"""``joao data``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument

from joao.cli import inputs
from joao.cli.output import Output, quantity
from joao.core.errors import UserError

if TYPE_CHECKING:
    from joao.data import Dataset, Shards

TASKS_SHOWN = 30


@inputs.with_data_help
def data(
    source: str | None = Argument(None, metavar="DATA", help="Data set to describe."),
    smiles: inputs.SmilesColumn = None,
    identifiers: inputs.IdColumn = None,
    tasks: inputs.Tasks = None,
    standardise: inputs.Standardise = None,
    data_root: inputs.DataRoot = None,
    clear_cache: bool = inputs.flag("--clear-cache", "Delete the cached copies that speed up reading."),
    check: bool = inputs.flag("--check", "Read all shards and verify their checksums."),
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """List the available data sets, or describe one."""
    output = Output(quiet, as_json)
    if check and source is None:
        raise UserError("--check: missing argument DATA, a folder of shards.")
    if clear_cache and source is not None:
        raise UserError("--clear-cache: deletes the cached copies of all data sets. Remove DATA.")
    if source is None:
        _list_or_clear(clear_cache, data_root, output)
        return
    from joao.data import Shards

    columns = inputs.column_options(smiles, identifiers, tasks, standardise)
    dataset = inputs.open_data(source, data_root, output, columns)
    if isinstance(dataset, Shards):
        _describe_shards(dataset, check, output)
    elif check:
        raise UserError(f"{source}: --check is for shards; other files are checked whenever they are read.")
    else:
        describe = _describe_molecules if dataset.kind in ("molecules", "ogb_molecules") else _describe_graphs
        describe(dataset, _official_split(dataset, source, data_root), output)
    output.suggest(f"pretrain {inputs.source_words(source, columns, data_root)}", Path("runs") / dataset.name)


def _list_or_clear(clear_cache: bool, data_root: str | None, output: Output) -> None:
    from joao.data import cache, list_datasets

    sizes = cache.sizes()
    size = {"files": len(sizes), "bytes": sum(sizes.values())}
    files = f"{quantity(size['files'], 'files')} ({size['bytes'] / 1e6:.1f} MB) in {cache.folder()}"
    if clear_cache:
        cache.clear()
        output.result({"removed": size})
        output.say(f"Cache cleared: {files}." if sizes else "The cache is empty.")
        return
    names = list_datasets(data_root)
    output.result({"data": names, "packed": size})
    output.say(*names)
    if sizes:
        output.say(f"Cache: {files}. To clear it: joao data --clear-cache")
    first = inputs.source_words(names[0], {}, data_root)
    output.say(f"Describe one of these, or your own file or folder: joao data {first}")


def _describe_graphs(dataset: Dataset, split: dict[str, Any], output: Output) -> None:
    import numpy as np

    from joao.data.refinement import count_twins, find_twins

    classes = [] if dataset.classes is None else np.bincount(dataset.classes[dataset.classes >= 0]).tolist()
    facts: dict[str, Any] = {
        "name": dataset.name,
        "graphs": len(dataset),
        "nodes": _range(np.diff(dataset.first_node)),
        "edges": _range(np.diff(dataset.first_edge) // 2),
        "node labels": _num_labels(dataset),
        "node attributes": 0 if dataset.node_attributes is None else dataset.node_attributes.shape[1],
        "edge attributes": 0 if dataset.edge_attr is None else dataset.edge_attr.shape[1],
        "classes": dict(zip(dataset.class_names, classes, strict=True)),
        **split,
        **({} if split else {"twins": count_twins(find_twins(dataset), dataset.classes)._asdict()}),
        "fingerprint": dataset.fingerprint,
    }
    output.result(facts)
    output.say(f"{dataset.name}: {quantity(len(dataset), dataset.kind)}")
    _print_sizes(facts, "graph", ("nodes", "edges"), output)
    _print_attributes(facts, output)
    counts = ", ".join(f"{name}: {count}" for name, count in facts["classes"].items())
    if counts and (missing := len(dataset) - sum(classes)):
        counts += f", missing: {missing}"
    if dataset.kind == "syntax_trees":
        counts = "none; only 'python -m repro ogb' reads the words to predict"
    output.say(f"  classes: {counts or 'none (not needed for pre-training)'}")
    _print_split(split, output)
    if facts.get("twins", {}).get("with_twin"):
        shares = {what: 100 * count / facts["graphs"] for what, count in facts["twins"].items()}
        other = f"; {shares['with_twin_of_another_class']:.1f} % have one of another class" if counts else ""
        output.say(
            f"  twins: {shares['with_twin']:.1f} % of the graphs have a twin, a graph with the same edges and node "
            f"labels{other}"
        )


def _describe_molecules(dataset: Dataset, split: dict[str, Any], output: Output) -> None:
    import numpy as np

    facts: dict[str, Any] = {
        "name": dataset.name,
        "molecules": len(dataset),
        "different SMILES": len(set(dataset.smiles)) or None,
        "atoms": _range(np.diff(dataset.first_node)),
        "bonds": _range(np.diff(dataset.first_edge) // 2),
        "tasks": {name: _task_statistics(dataset, number) for number, name in enumerate(dataset.target_names)},
        "failures": [each._asdict() for each in dataset.failures],
        "featuriser": dataset.featuriser,
        **split,
        "fingerprint": dataset.fingerprint,
    }
    output.result(facts)
    different = f", {facts['different SMILES']} different SMILES" if dataset.smiles else ""
    output.say(f"{dataset.name}: {quantity(len(dataset), 'molecules')}{different}")
    _print_sizes(facts, "molecule", ("atoms", "bonds"), output)
    output.say("  tasks:" if facts["tasks"] else "  tasks: none (not needed for pre-training)")
    for name, task in list(facts["tasks"].items())[:TASKS_SHOWN]:
        output.say(f"    {name}: " + ", ".join(f"{what}: {count}" for what, count in task.items()))
    if len(facts["tasks"]) > TASKS_SHOWN:
        output.say(f"    and {len(facts['tasks']) - TASKS_SHOWN} more; --json shows all")
    _print_split(split, output)


def _describe_shards(shards: Shards, check: bool, output: Output) -> None:
    """Describe shards by their index; the shards themselves are read only to check them."""
    if check:
        shards.check()
    known, size = shards.facts, shards.num_bytes
    labels = None if known.label_values is None else len({value for each in known.label_values for value in each})
    facts: dict[str, Any] = {
        "name": shards.name,
        "kind": shards.kind,
        "graphs": len(shards),
        "shards": len(shards.index.shards),
        "bytes": size,
        "nodes": {"mean": known.nodes / known.graphs, "most": known.most_nodes},
        "edges": {"mean": known.edges / known.graphs, "most": known.most_edges},
        "most neighbours": known.most_degree,
        "node labels": labels,
        "node attributes": len(known.attributes or ()),
        "edge attributes": known.num_edge_features,
        "classes": list(known.class_names),
        "tasks": list(known.target_names),
        "failures": shards.index.num_failures,
        "featuriser": shards.featuriser,
        "fingerprint": shards.fingerprint,
        "checked": check,
    }
    output.result(facts)
    in_shards = f"in {quantity(facts['shards'], 'shards')}, {size / 1e6:.1f} MB"
    output.say(f"{shards.name}: {quantity(len(shards), shards.kind)} {in_shards}")
    _print_sizes(facts, "graph", ("nodes", "edges"), output)
    _print_attributes(facts, output)
    output.say(f"  classes: {len(known.class_names) or 'none'}; tasks: {len(known.target_names) or 'none'}")
    if check:
        output.say("  all checksums are correct")


def _range(sizes: Any) -> dict[str, float]:
    return {"mean": float(sizes.mean()), "least": int(sizes.min()), "most": int(sizes.max())}


def _print_sizes(facts: dict[str, Any], unit: str, what: tuple[str, str], output: Output) -> None:
    for each in what:
        value = facts[each]
        limits = f"{value['least']} to {value['most']}" if "least" in value else f"at most {value['most']}"
        output.say(f"  {each} per {unit}: {value['mean']:.2f} ({limits})")


def _print_attributes(facts: dict[str, Any], output: Output) -> None:
    labels, nodes, edges = (facts[key] or "none" for key in ("node labels", "node attributes", "edge attributes"))
    output.say(f"  node labels: {labels}; node attributes: {nodes}")
    output.say(f"  edge attributes: {edges}")


def _num_labels(dataset: Dataset) -> int | None:
    """The number of different node labels; in syntax trees, only node types and attributes count as labels."""
    import numpy as np

    if dataset.node_labels is None:
        return None
    columns = dataset.node_labels.T[:2] if dataset.kind == "syntax_trees" else [dataset.node_labels]
    return sum(len(np.unique(column)) for column in columns)


def _official_split(dataset: Dataset, source: str, data_root: str | None) -> dict[str, Any]:
    """The criterion and sizes of the official split of an OGB data set; empty for other data sets."""
    from joao.data.formats.ogb import official_split
    from joao.data.names import ogb_path

    if (path := ogb_path(source, data_root)) is None:
        return {}
    split = official_split(path, len(dataset))
    sizes = {part: len(getattr(split, part)) for part in ("train", "validation", "test")}
    return {"official split": {"by": split.name, **sizes}}


def _print_split(split: dict[str, Any], output: Output) -> None:
    for title, facts in split.items():
        sizes = ", ".join(f"{part}: {size}" for part, size in facts.items() if part != "by")
        output.say(f"  {title} by {facts['by']}: {sizes}")


def _task_statistics(dataset: Dataset, number: int) -> dict[str, int | float]:
    """The counts of 0 and 1 for a binary task, mean and range for a regression task, and the missing values."""
    import numpy as np

    if dataset.targets is None:
        return {}
    column = dataset.targets[:, number]
    measured = column[~np.isnan(column)]
    facts: dict[str, int | float] = {"missing": len(column) - len(measured)}
    if np.isin(measured, (0, 1)).all():
        return {"0": int((measured == 0).sum()), "1": int((measured == 1).sum()), **facts}
    numbers = {"mean": measured.mean(dtype=np.float64), "least": measured.min(), "most": measured.max()}
    return {**{what: float(f"{value:.6g}") for what, value in numbers.items()}, **facts}
