"""The family of pre-training objectives. A new one is a file, and a line here."""

from joao.catalogue import catalogue
from joao.objectives.base import Objective as Objective
from joao.objectives.nt_xent import NtXent as NtXent

OBJECTIVES: dict[str, type[Objective]] = catalogue(Objective, globals())
