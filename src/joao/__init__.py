"""Graph contrastive learning that chooses its own augmentations.

>>> import joao
>>> model = joao.JOAO(epochs=2).fit(joao.read("MUTAG"))
>>> model.transform(joao.read("MUTAG")).shape
(188, 303)
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from joao.augmentations import Augmentation as Augmentation
    from joao.baselines import GL as GL
    from joao.baselines import LDP as LDP
    from joao.baselines import WL as WL
    from joao.baselines import Graph2vec as Graph2vec
    from joao.baselines import Histogram as Histogram
    from joao.comparison.table import compare as compare
    from joao.core.errors import JoaoNotice as JoaoNotice
    from joao.core.errors import UserError as UserError
    from joao.core.graphs import GraphBatch as GraphBatch
    from joao.core.pair_table import PairTable as PairTable
    from joao.data import Dataset as Dataset
    from joao.data import Shards as Shards
    from joao.data import read as read
    from joao.encoders import Encoder as Encoder
    from joao.estimators.classifier import JOAOClassifier as JOAOClassifier
    from joao.estimators.joao import JOAO as JOAO
    from joao.estimators.kernel_sum import KernelSum as KernelSum
    from joao.estimators.loading import load as load
    from joao.estimators.regressor import JOAORegressor as JOAORegressor
    from joao.runs.neighbors import neighbors as neighbors
    from joao.runs.parts import Embedder as Embedder
    from joao.runs.parts import embed as embed

_HOME = {
    "Augmentation": "joao.augmentations",
    "Dataset": "joao.data",
    "Embedder": "joao.runs.parts",
    "Encoder": "joao.encoders",
    "GL": "joao.baselines",
    "Graph2vec": "joao.baselines",
    "GraphBatch": "joao.core.graphs",
    "Histogram": "joao.baselines",
    "JOAO": "joao.estimators.joao",
    "JOAOClassifier": "joao.estimators.classifier",
    "JOAORegressor": "joao.estimators.regressor",
    "JoaoNotice": "joao.core.errors",
    "KernelSum": "joao.estimators.kernel_sum",
    "LDP": "joao.baselines",
    "PairTable": "joao.core.pair_table",
    "Shards": "joao.data",
    "UserError": "joao.core.errors",
    "WL": "joao.baselines",
    "compare": "joao.comparison.table",
    "embed": "joao.runs.parts",
    "load": "joao.estimators.loading",
    "neighbors": "joao.runs.neighbors",
    "read": "joao.data",
}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    """Loads a public name on first use, so that ``import joao`` and ``joao --help`` need not wait for torch."""
    if name in _HOME:
        import gc
        import importlib

        # Importing torch and scikit-learn makes 300,000 objects. Searching them for garbage, of which there is next to
        # none, takes a sixth of the time.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return getattr(importlib.import_module(_HOME[name]), name)
        finally:
            if was_enabled:
                gc.enable()
    raise AttributeError(f"module 'joao' has no attribute '{name}'")
