"""The family of pre-training objectives. A new one is a file, and a line here."""

from joao.catalogue import catalogue
from joao.objectives.attribute_masking import AttributeMasking as AttributeMasking
from joao.objectives.base import NodeObjective as NodeObjective
from joao.objectives.base import Objective as Objective
from joao.objectives.base import PairObjective as PairObjective
from joao.objectives.context_prediction import ContextPrediction as ContextPrediction
from joao.objectives.edge_reconstruction import EdgeReconstruction as EdgeReconstruction
from joao.objectives.infomax import Infomax as Infomax
from joao.objectives.nt_xent import NtXent as NtXent

OBJECTIVES: dict[str, type[Objective]] = catalogue(Objective, globals())
