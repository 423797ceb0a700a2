"""Names of methods, and scores as text."""

from __future__ import annotations

from collections.abc import Sequence

from joao.evaluation.statistics import Gain

OBJECTIVES = {
    "nt_xent": "NT-Xent",
    "jensen_shannon": "Jensen-Shannon",
    "barlow_twins": "Barlow Twins",
    "bootstrap": "bootstrap",
}


NAMES = {
    "none": "no pre-training",
    "augmentations": "augmentations only",
    "gae": "GAE",
    "infomax": "Infomax",
    "context_pred": "ContextPred",
    "edge_pred": "EdgePred",
    "attr_masking": "AttrMasking",
    "ecfp": "random forest on ECFP",
    "joao_ecfp": "random forest on ECFP and JOAO's embeddings",
    "gl": "GL (graphlet kernel)",
    "wl": "WL (subtree kernel)",
    "dgk": "DGK (deep graph kernel)",
    "node2vec": "node2vec",
    "sub2vec": "sub2vec",
    "graph2vec": "graph2vec",
    "ldp": "local degree profile",
    "mvgrl": "MVGRL",
    "infograph": "InfoGraph",
    "histogram": "label and degree histogram",
    "untrained_initial": "untrained encoder, as initialised",
    "untrained": "untrained encoder, calibrated",
    "graphcl": "GraphCL (rule pool)",
    "uniform": "uniform",
    "joao": "JOAO",
    "joaov2": "JOAOv2",
    "joao_default": "JOAO() as it comes",
    "joao_strengths": "JOAO, strengths learned",
    "joaov2_joao_budget": "JOAOv2, JOAO's budget",
    **{
        f"{objective}_{policy}": f"{name}, {policy if policy == 'uniform' else 'JOAO'}"
        for objective, name in OBJECTIVES.items()
        for policy in ("uniform", "joao")
    },
    "joao_stronger": "JOAO, strength 0.25",
    "joaov2_stronger": "JOAOv2, strength 0.25",
    "joao_without_prior": "JOAO, gamma = 0",
}


def with_deviation(mean: float, std: float | None) -> str:
    """
    >>> with_deviation(87.346, 1.02)
    '87.35 ± 1.02'
    """
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def with_interval(gain: Gain | None, times: float = 1) -> str:
    """
    >>> with_interval(Gain(2.77, -1.66, 7.21)), with_interval(Gain(0.0277, -0.0166, 0.0721), times=100)
    ('+2.77 (-1.66 to +7.21)', '+2.77 (-1.66 to +7.21)')
    """
    return "" if gain is None else f"{times * gain.mean:+.2f} ({times * gain.low:+.2f} to {times * gain.high:+.2f})"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    r"""A table as Markdown; a bar in a cell is no end of it.

    >>> print(markdown(["a", "b"], [["1", "2|3"]]))
    | a | b |
    | --- | --- |
    | 1 | 2\|3 |
    """
    marks = ["---"] * len(header)
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in [header, marks, *lines])
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
