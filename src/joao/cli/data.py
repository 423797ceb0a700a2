from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli.inputs import (
    AsJson,
    DataRoot,
    IdColumn,
    Quiet,
    SmilesColumn,
    Tasks,
    column_words,
    columns_of,
    open_data,
    with_data_help,
)
from joao.cli.output import Output, quoted
from joao.core.errors import UserError

if TYPE_CHECKING:
    from joao.data import Dataset, Shards

TASKS_SHOWN = 30


@with_data_help
def data(
    source: Annotated[str | None, typer.Argument(metavar="DATA", help="A data set to describe.")] = None,
    smiles: SmilesColumn = None,
    identifiers: IdColumn = None,
    tasks: Tasks = None,
    data_root: DataRoot = None,
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove the packed copies that make a second read quick.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Of shards: read everything and compare it with its checksums.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """List the available data sets, or describe one."""
    output = Output(quiet, as_json)
    if check and source is None:
        raise UserError("--check needs DATA: a folder of shards.")
    if clear_cache and source is not None:
        raise UserError("--clear-cache takes no DATA: it removes the packed copies of all data sets.")
    if source is None:
        from joao.data import cache, list_datasets

        packed = cache.sizes()
        held = f"{len(packed)} ({sum(packed.values()) / 1e6:.1f} MB) in {cache.folder()}"
        if clear_cache:
            cache.clear()
            output.result({"removed": {"files": len(packed), "bytes": sum(packed.values())}})
            output.say(f"Packed copies removed: {held}." if packed else "No packed copies to remove.")
            return
        names = list_datasets(data_root)
        output.result({"data": names, "packed": {"files": len(packed), "bytes": sum(packed.values())}})
        output.say("\n".join(names))
        if packed:
            output.say(f"Packed copies for a quick start: {held}. Remove them: joao data --clear-cache")
        output.say(f"Describe one, or a file or folder of your own: joao data {names[0]}")
        return
    import numpy as np

    from joao.data import Shards
    from joao.data.refinement import count_twins, find_twins

    dataset = open_data(source, data_root, output, columns_of(smiles, identifiers, tasks))
    if isinstance(dataset, Shards):
        _describe_shards(dataset, source, check, output)
        return
    if check:
        raise UserError(f"{source}: --check is for shards; any other file is checked whenever it is read.")
    split = _official_split(dataset, source, data_root)
    if dataset.kind in ("molecules", "ogb_molecules"):
        _describe_molecules(dataset, f"{quoted(source)}{column_words(smiles, identifiers)}", split, output)
        return
    sizes, edges = np.diff(dataset.first_node), np.diff(dataset.first_edge) // 2
    classes = [] if dataset.classes is None else np.bincount(dataset.classes[dataset.classes >= 0]).tolist()
    facts: dict[str, Any] = {
        "name": dataset.name,
        "graphs": len(dataset),
        "nodes": {"mean": float(sizes.mean()), "least": int(sizes.min()), "most": int(sizes.max())},
        "edges": {"mean": float(edges.mean()), "least": int(edges.min()), "most": int(edges.max())},
        "node labels": _num_labels(dataset),
        "node attributes": 0 if dataset.node_attributes is None else dataset.node_attributes.shape[1],
        "edge attributes": 0 if dataset.edge_attr is None else dataset.edge_attr.shape[1],
        "classes": dict(zip(dataset.class_names, classes, strict=True)),
        **split,
        **({} if split else {"twins": count_twins(find_twins(dataset), dataset.classes)._asdict()}),
        "fingerprint": dataset.fingerprint,
    }
    output.result(facts)
    output.say(f"{facts['name']}: {facts['graphs']} {dataset.kind.replace('_', ' ')}")
    for what in ("nodes", "edges"):
        value = facts[what]
        output.say(f"  {what} per graph: {value['mean']:.2f} ({value['least']} to {value['most']})")
    output.say(
        f"  node labels: {facts['node labels'] or 'none'}; node attributes: {facts['node attributes'] or 'none'}"
    )
    output.say(f"  edge attributes: {facts['edge attributes'] or 'none'}")
    counts = ", ".join(f"{name}: {count}" for name, count in facts["classes"].items())
    if dataset.kind == "syntax_trees":
        counts = "none; the words to predict are read by 'joao reproduce ogb' alone"
    output.say(f"  classes: {counts or 'none (pre-training needs none)'}")
    _tell_split(split, output)
    _tell_twins(facts, output)
    output.say(f"Next: joao pretrain {quoted(source)} --out {quoted(f'runs/{dataset.name}')}")


def _tell_twins(facts: dict[str, Any], output: Output) -> None:
    if not facts.get("twins", {}).get("with_twin"):
        return
    shares = {what: 100 * count / facts["graphs"] for what, count in facts["twins"].items()}
    other = f", {shares['with_twin_of_another_class']:.1f} % one of another class" if facts["classes"] else ""
    output.say(
        f"  twins: {shares['with_twin']:.1f} % of the graphs have one, with the same edges and node labels{other}"
    )


def _num_labels(dataset: Dataset) -> int | None:
    """Of syntax trees, types and attributes; depths and places are none."""
    import numpy as np

    if dataset.node_labels is None:
        return None
    if dataset.kind == "syntax_trees":
        return sum(len(np.unique(column)) for column in dataset.node_labels.T[:2])
    return len(np.unique(dataset.node_labels))


def _official_split(dataset: Dataset, source: str, data_root: str | None) -> dict[str, Any]:
    """Of a data set of OGB: what the split is by, and the graphs of its parts."""
    from joao.data.formats.ogb import official_split
    from joao.data.names import ogb_path

    path = ogb_path(source, data_root)
    if path is None:
        return {}
    split = official_split(path, len(dataset))
    sizes = {part: len(getattr(split, part)) for part in ("train", "validation", "test")}
    return {"official split": {"by": split.name, **sizes}}


def _tell_split(split: dict[str, Any], output: Output) -> None:
    for title, facts in split.items():
        sizes = ", ".join(f"{part}: {size}" for part, size in facts.items() if part != "by")
        output.say(f"  {title} by {facts['by']}: {sizes}")


def _describe_molecules(dataset: Dataset, words: str, split: dict[str, Any], output: Output) -> None:
    import numpy as np

    atoms, bonds = np.diff(dataset.first_node), np.diff(dataset.first_edge) // 2
    facts: dict[str, Any] = {
        "name": dataset.name,
        "molecules": len(dataset),
        "different SMILES": len(set(dataset.smiles)) or None,
        "atoms": {"mean": float(atoms.mean()), "least": int(atoms.min()), "most": int(atoms.max())},
        "bonds": {"mean": float(bonds.mean()), "least": int(bonds.min()), "most": int(bonds.max())},
        "tasks": {name: _task(dataset, number) for number, name in enumerate(dataset.target_names)},
        "failures": [each._asdict() for each in dataset.failures],
        "featuriser": dataset.featuriser,
        **split,
        "fingerprint": dataset.fingerprint,
    }
    output.result(facts)
    different = f", {facts['different SMILES']} different SMILES" if dataset.smiles else ""
    output.say(f"{dataset.name}: {len(dataset)} molecule{'s' if len(dataset) > 1 else ''}{different}")
    for what in ("atoms", "bonds"):
        value = facts[what]
        output.say(f"  {what} per molecule: {value['mean']:.2f} ({value['least']} to {value['most']})")
    output.say("  tasks:" if facts["tasks"] else "  tasks: none (pre-training needs none)")
    for name, task in list(facts["tasks"].items())[:TASKS_SHOWN]:
        output.say(f"    {name}: " + ", ".join(f"{what}: {count}" for what, count in task.items()))
    if len(facts["tasks"]) > TASKS_SHOWN:
        output.say(f"    and {len(facts['tasks']) - TASKS_SHOWN} more; all with --json")
    _tell_split(split, output)
    output.say(f"Next: joao pretrain {words} --out {quoted(f'runs/{dataset.name}')}")


def _describe_shards(shards: Shards, source: str, check: bool, output: Output) -> None:
    """By what the index knows; nothing is read, unless it is checked."""
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
    output.say(f"{shards.name}: {len(shards)} {shards.kind} in {facts['shards']} shards, {size / 1e6:.1f} MB")
    for what in ("nodes", "edges"):
        output.say(f"  {what} per graph: {facts[what]['mean']:.2f} (at most {facts[what]['most']})")
    output.say(f"  node labels: {labels or 'none'}; node attributes: {facts['node attributes'] or 'none'}")
    output.say(f"  edge attributes: {facts['edge attributes'] or 'none'}")
    output.say(f"  classes: {len(known.class_names) or 'none'}; tasks: {len(known.target_names) or 'none'}")
    if check:
        output.say("  every shard is what was written")
    output.say(f"Next: joao pretrain {quoted(source)} --out {quoted(f'runs/{shards.name}')}")


def _task(dataset: Dataset, number: int) -> dict[str, int | float]:
    """Of a task of zeros and ones, how many there are of each; of another one, mean and range."""
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
