"""The family of policies. A new one is a file, and a line here."""

from joao.catalogue import catalogue
from joao.policies.base import Policy as Policy
from joao.policies.fixed import Fixed as Fixed
from joao.policies.given import Given as Given
from joao.policies.kullback_leibler import KullbackLeibler as KullbackLeibler
from joao.policies.maximiser import Maximiser as Maximiser
from joao.policies.min_max import MinMax as MinMax
from joao.policies.rule_pool import RulePool as RulePool
from joao.policies.uniform import Uniform as Uniform

POLICIES: dict[str, type[Policy]] = catalogue(Policy, globals())
