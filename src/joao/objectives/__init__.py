"""Pre-training objectives. To add one, write a file and import it here."""

from joao.core.registry import catalogue
from joao.objectives.attribute_masking import AttributeMasking as AttributeMasking
from joao.objectives.barlow_twins import BarlowTwins as BarlowTwins
from joao.objectives.base import MomentumObjective as MomentumObjective
from joao.objectives.base import NodeObjective as NodeObjective
from joao.objectives.base import Objective as Objective
from joao.objectives.base import PairObjective as PairObjective
from joao.objectives.bootstrap import Bootstrap as Bootstrap
from joao.objectives.context_prediction import ContextPrediction as ContextPrediction
from joao.objectives.edge_reconstruction import EdgeReconstruction as EdgeReconstruction
from joao.objectives.infomax import InfoGraph as InfoGraph
from joao.objectives.infomax import Infomax as Infomax
from joao.objectives.infomax import MultiView as MultiView
from joao.objectives.jensen_shannon import JensenShannon as JensenShannon
from joao.objectives.nt_xent import NtXent as NtXent

OBJECTIVES: dict[str, type[Objective]] = catalogue(Objective, globals())
