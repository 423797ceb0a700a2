from __future__ import annotations

from typing import Annotated, Any

import typer

from joao.cli._shared import AsJson, DataRoot, Output, Quiet, quoted, read_data
from joao.errors import UserError


def data(
    source: Annotated[str | None, typer.Argument(metavar="DATA", help="A data set to describe.")] = None,
    data_root: DataRoot = None,
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove the packed copies that make a second read quick.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """List the data sets at hand, or describe one.

    DATA is the name of a TU data set, or a path: a TU zip or folder, .graphml, .csv or .jsonl.
    """
    output = Output(quiet, as_json)
    if clear_cache and source is not None:
        raise UserError("--clear-cache takes no DATA: it removes the packed copies of all data sets.")
    if source is None:
        from joao.data import cache, listing

        packed = cache.sizes()
        held = f"{len(packed)} ({sum(packed.values()) / 1e6:.1f} MB) in {cache.folder()}"
        if clear_cache:
            cache.clear()
            output.result({"removed": {"files": len(packed), "bytes": sum(packed.values())}})
            output.say(f"Packed copies removed: {held}." if packed else "No packed copies to remove.")
            return
        names = listing(data_root)
        output.result({"data": names, "packed": {"files": len(packed), "bytes": sum(packed.values())}})
        output.say("\n".join(names))
        if packed:
            output.say(f"Packed copies for a quick start: {held}. Remove them: joao data --clear-cache")
        output.say(f"Describe one: joao data {names[0]}")
        return
    import numpy as np

    dataset = read_data(source, data_root, output)
    sizes, edges = np.diff(dataset.first_node), np.diff(dataset.first_edge) // 2
    classes = [] if dataset.classes is None else np.bincount(dataset.classes[dataset.classes >= 0]).tolist()
    facts: dict[str, Any] = {
        "name": dataset.name,
        "graphs": len(dataset),
        "nodes": {"mean": float(sizes.mean()), "least": int(sizes.min()), "most": int(sizes.max())},
        "edges": {"mean": float(edges.mean()), "least": int(edges.min()), "most": int(edges.max())},
        "node labels": None if dataset.node_labels is None else len(np.unique(dataset.node_labels)),
        "node attributes": 0 if dataset.node_attributes is None else dataset.node_attributes.shape[1],
        "edge attributes": 0 if dataset.edge_attr is None else dataset.edge_attr.shape[1],
        "classes": dict(zip(dataset.class_names, classes, strict=True)),
        "fingerprint": dataset.fingerprint,
    }
    output.result(facts)
    output.say(f"{facts['name']}: {facts['graphs']} graphs")
    for what in ("nodes", "edges"):
        value = facts[what]
        output.say(f"  {what} per graph: {value['mean']:.2f} ({value['least']} to {value['most']})")
    output.say(
        f"  node labels: {facts['node labels'] or 'none'}; node attributes: {facts['node attributes'] or 'none'}"
    )
    output.say(f"  edge attributes: {facts['edge attributes'] or 'none'}")
    counts = ", ".join(f"{name}: {count}" for name, count in facts["classes"].items())
    output.say(f"  classes: {counts or 'none (pre-training needs none)'}")
    output.say(f"Next: joao pretrain {quoted(source)} --out {quoted(f'runs/{dataset.name}')}")
