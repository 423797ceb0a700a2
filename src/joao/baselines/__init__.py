"""The family of methods that pre-train no encoder. A new one is a file, and a line here."""

from joao.baselines.base import Baseline as Baseline
from joao.baselines.dgk import DGK as DGK
from joao.baselines.gl import GL as GL
from joao.baselines.graph2vec import Graph2vec as Graph2vec
from joao.baselines.histogram import Histogram as Histogram
from joao.baselines.ldp import LDP as LDP
from joao.baselines.node2vec import Node2vec as Node2vec
from joao.baselines.sub2vec import Sub2vec as Sub2vec
from joao.baselines.wl import WL as WL
from joao.core.registry import catalogue

BASELINES: dict[str, type[Baseline]] = catalogue(Baseline, globals())
