"""Do our graph kernels equal those of GraKeL, and how long do both take?

    OMP_NUM_THREADS=1 python -m repro.studies.kernels

Computes the normalised matrix of the Weisfeiler-Lehman kernel with three refinements over all pairs of graphs with both
packages in turn, from graphs in their own formats. The graphlet kernel is timed where GraKeL counts every subgraph, which
it does for four nodes only (ours counts three and four nodes, so these are different kernels). On larger data sets this
takes too long to be measure.
"""

import time
import warnings
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.baselines import GL, WL
from joao.data import Dataset, read_whole
from joao.evaluation.svm import normalised_gram
from joao.evaluation.tables import markdown
from repro.studies.common import generated, make_page, origin, publish

WL_DATA = ("MUTAG", "IMDB-BINARY", "PROTEINS", "NCI1", "DD")
GL_DATA = ("MUTAG",)
ITERATIONS = 3
TURNS = 3

Matrix = NDArray[np.float64]


def convert_to_grakel(dataset: Dataset) -> list[Any]:
    import grakel

    graphs = []
    for graph in dataset:
        labels = np.zeros(graph.num_nodes, dtype=int) if graph.node_labels is None else graph.node_labels[:, 0]
        edges = {(int(u), int(v)): 1 for u, v in zip(graph.source, graph.target, strict=True)}
        nodes = {node: int(label) for node, label in enumerate(labels)}
        graphs.append(grakel.Graph(edges, node_labels=nodes, graph_format="dictionary") if edges else [{}, nodes])
    return graphs


def measure(data: str, kernel: str) -> dict[str, Any]:
    import grakel

    dataset = read_whole(data)
    graphs = convert_to_grakel(dataset)

    def ours() -> Matrix:
        method = WL(iterations=ITERATIONS) if kernel == "WL" else GL()
        return normalised_gram(method.fit_transform(dataset))

    def theirs() -> Matrix:
        if kernel == "WL":
            method = grakel.WeisfeilerLehman(
                n_iter=ITERATIONS, normalize=True, base_graph_kernel=grakel.VertexHistogram
            )
        else:
            method = grakel.GraphletSampling(normalize=True, k=4)
        matrix: Matrix = method.fit_transform(graphs)
        return matrix

    times: dict[str, list[float]] = {"ours": [], "GraKeL": []}
    for _ in range(TURNS):
        for name, make in {"ours": ours, "GraKeL": theirs}.items():
            started = time.perf_counter()
            matrix = make()
            times[name].append(time.perf_counter() - started)
            if name == "ours":
                own = matrix
    return {
        "data": data,
        "kernel": kernel,
        "graphs": len(dataset),
        "nodes": dataset.num_nodes,
        "seconds": times,
        "largest difference": float(np.abs(own - matrix).max()) if kernel == "WL" else None,
    }


def page(record: dict[str, Any]) -> str:
    lines = []
    for run in record["runs"]:
        ours, theirs = (median(run["seconds"][name]) for name in ("ours", "GraKeL"))
        ratio = median(b / a for a, b in zip(run["seconds"]["ours"], run["seconds"]["GraKeL"], strict=True))
        difference = run["largest difference"]
        cells = [run["kernel"], run["data"], f"{run['graphs']:,}", f"{run['nodes']:,}", f"{ours:.3f}", f"{theirs:.2f}"]
        lines.append([*cells, f"{ratio:.0f}", "" if difference is None else f"{difference:.0e}"])
    made, machine_of = record["versions"], record["machine"]
    header = ["kernel", "data", "graphs", "nodes", "ours, s", "GraKeL, s", "GraKeL / ours", "largest difference"]
    return make_page(
        "Graph kernels compared with GraKeL",
        f"{generated('kernels')} joao {made['joao']}, GraKeL {record['GraKeL']}, "
        f"{machine_of['processor']}, {machine_of['threads']} thread; medians of {TURNS} rounds; ratios are computed within rounds.",
        markdown(header, lines),
    )


def main() -> None:
    import grakel

    warnings.filterwarnings("ignore")  # of old numpy calls in GraKeL
    runs = [measure(data, "WL") for data in WL_DATA] + [measure(data, "GL") for data in GL_DATA]
    record = {
        "runs": runs,
        "GraKeL": grakel.__version__,
        **origin(),
    }
    publish("kernels", record, page)


if __name__ == "__main__":
    main()
