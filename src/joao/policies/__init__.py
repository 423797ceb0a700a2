"""Policies: probabilities of augmentation pairs. To add one, write a file and import it here."""

from joao.core.registry import catalogue
from joao.policies.base import Policy as Policy
from joao.policies.fixed import Fixed as Fixed
from joao.policies.fixed import Given as Given
from joao.policies.fixed import RulePool as RulePool
from joao.policies.fixed import Uniform as Uniform
from joao.policies.kullback_leibler import KullbackLeibler as KullbackLeibler
from joao.policies.min_max import Maximiser as Maximiser
from joao.policies.min_max import MinMax as MinMax

POLICIES: dict[str, type[Policy]] = catalogue(Policy, globals())
