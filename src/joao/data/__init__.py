"""Data sets of graphs: readers, node features and batches.

Names are loaded on first use: listing data sets must not wait for torch, and help texts not for numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joao.data.dataset import Dataset as Dataset
    from joao.data.features import Features as Features
    from joao.data.features import batch_of as batch_of
    from joao.data.features import make_store as make_store
    from joao.data.names import list_datasets as list_datasets
    from joao.data.shards.shards import Shards as Shards
    from joao.data.sources import read as read
    from joao.data.sources import read_whole as read_whole

_HOME = {
    "Dataset": "dataset",
    "Features": "features",
    "Shards": "shards.shards",
    "batch_of": "features",
    "list_datasets": "names",
    "make_store": "features",
    "read": "sources",
    "read_whole": "sources",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"joao.data.{_HOME[name]}"), name)
    raise AttributeError(f"module 'joao.data' has no attribute '{name}'")
