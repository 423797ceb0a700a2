"""Baselines: graph kernels and embeddings without an encoder. To add one, write a file and import it here."""

from joao.baselines.base import Baseline as Baseline
from joao.baselines.doc2vec import Graph2vec as Graph2vec
from joao.baselines.graphlets import GL as GL
from joao.baselines.histogram import LDP as LDP
from joao.baselines.histogram import Histogram as Histogram
from joao.baselines.wl import WL as WL
from joao.core.registry import catalogue

BASELINES: dict[str, type[Baseline]] = catalogue(Baseline, globals())
