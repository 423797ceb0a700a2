"""Augmentations: random changes of graphs. To add one, write a file and import it here."""

from joao.augmentations.attribute_mask import AttributeMask as AttributeMask
from joao.augmentations.base import Augmentation as Augmentation
from joao.augmentations.edge_perturb import EdgePerturb as EdgePerturb
from joao.augmentations.identity import Identity as Identity
from joao.augmentations.node_drop import NodeDrop as NodeDrop
from joao.augmentations.subgraph import Subgraph as Subgraph
from joao.core.registry import catalogue

AUGMENTATIONS: dict[str, type[Augmentation]] = catalogue(Augmentation, globals())
