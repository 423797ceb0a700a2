"""Display names of the rows of the paper's tables, in the order of the tables."""

from joao.config.methods import titles
from joao.objectives import OBJECTIVES, PairObjective
from repro.baselines import PAPER_BASELINES

_ORDER = ("nt_xent", "jensen_shannon", "barlow_twins", "bootstrap")
_PAIR_OBJECTIVES = {name: kind.title for name, kind in OBJECTIVES.items() if issubclass(kind, PairObjective)}
OBJECTIVE_NAMES = {name: _PAIR_OBJECTIVES[name] for name in (*_ORDER, *_PAIR_OBJECTIVES)}

# None: the package declares the title.
_ROWS = {
    "none": "no pre-training",
    "augmentations": "augmentations only",
    "augmentations_all": "augmentations only, all five",
    **dict.fromkeys(("gae", "infomax", "context_pred", "edge_pred", "attr_masking")),
    "ecfp": "random forest on ECFP",
    "joao_ecfp": "random forest on ECFP and JOAO's embeddings",
    **dict.fromkeys(("gl", "wl")),
    **{name: kind.title for name, kind in PAPER_BASELINES.items()},
    **dict.fromkeys(("graph2vec", "ldp")),
    "mvgrl_nt_xent": "MVGRL, NT-Xent",
    "mvgrl": "MVGRL, Jensen-Shannon",
    **dict.fromkeys(("infograph", "histogram")),
    **dict.fromkeys(("untrained_initial", "untrained", "graphcl", "uniform", "joao", "joaov2")),
    "joao_default": "JOAO(), default settings",
    "joao_default+wl": "JOAO() and WL",
    "joao_default+wl+ldp": "JOAO(), WL and degree profile",
    "joao_sum_readout": "JOAO(), default settings until 2026-11-18",
    "joao_strengths": None,
    "joaov2_joao_budget": "JOAOv2, JOAO's budget",
    **{
        f"{objective}_{policy}": f"{name}, {policy if policy == 'uniform' else 'JOAO'}"
        for objective, name in OBJECTIVE_NAMES.items()
        for policy in ("uniform", "joao")
    },
    "none_last": "no pre-training, last epoch",
    "joao_last": "JOAO, last epoch",
    "joao_stronger": "JOAO, strength 0.25",
    "joaov2_stronger": "JOAOv2, strength 0.25",
    "joao_without_prior": "JOAO, gamma = 0",
}
_NAMES = {row: title or titles()[row] for row, title in _ROWS.items()}
NAMES: dict[str, str] = _NAMES | titles() | _NAMES  # in this order, and with these names where both have one
