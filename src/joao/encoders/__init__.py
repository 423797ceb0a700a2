"""Encoders: graphs to vectors. To add one, write a file and import it here."""

from joao.core.registry import catalogue
from joao.encoders.base import Encoder as Encoder
from joao.encoders.base import NodeEncoder as NodeEncoder
from joao.encoders.convolutions import Convolutions as Convolutions
from joao.encoders.edge_gin import EdgeGin as EdgeGin
from joao.encoders.gin import Gin as Gin
from joao.encoders.gin import Gine as Gine
from joao.encoders.molecule_gin import MoleculeGin as MoleculeGin
from joao.encoders.molecule_gine import MoleculeGine as MoleculeGine
from joao.encoders.ogb import OgbGin as OgbGin
from joao.encoders.ogb import OgbMoleculeGin as OgbMoleculeGin
from joao.encoders.ogb import SyntaxGin as SyntaxGin
from joao.encoders.res_gcn import ResGcn as ResGcn

# Custom modules have no name here: joao.encoders.convolutions.ModuleEncoder wraps them.
ENCODERS: dict[str, type[Encoder]] = catalogue(Encoder, globals())
