"""Readers of graphs, and node features by rule."""

from typing import TYPE_CHECKING, Any

from joao.data.dataset import Dataset as Dataset
from joao.data.shards.shards import Shards as Shards
from joao.data.sources import list_datasets as list_datasets
from joao.data.sources import read as read
from joao.data.sources import read_whole as read_whole

if TYPE_CHECKING:
    from joao.data.features import Features as Features
    from joao.data.features import batch_of as batch_of
    from joao.data.features import make_store as make_store


def __getattr__(name: str) -> Any:
    """Loads features on first use: they need torch, which takes seconds that a listing should not wait for."""
    if name in ("Features", "batch_of", "make_store"):
        from joao.data import features

        return getattr(features, name)
    raise AttributeError(f"module 'joao.data' has no attribute '{name}'")
