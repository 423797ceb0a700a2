import pytest
import torch

from joao.policies import RulePool
from tests.messages import refused

NAMES = ["identity", "subgraph", "attribute_mask", "node_drop", "edge_perturb"]


@pytest.mark.parametrize(("pool", "members"), [("molecules", [1, 3]), ("sparse", [1, 3, 4]), ("dense", [1, 2, 3, 4])])
def test_both_views_are_drawn_uniformly_from_the_pool_of_the_rule(pool, members):
    expected = torch.zeros(5, 5, dtype=torch.float64)
    for i in members:
        for j in members:
            expected[i, j] = 1 / len(members) ** 2
    torch.testing.assert_close(RulePool(NAMES, pool).probabilities, expected)


def test_unknown_pools_and_missing_members_are_refused():
    with refused("'molecule'", "'molecules'"):
        RulePool(NAMES, "molecule")
    with refused("'edge_perturb'"):
        RulePool(NAMES[:4], "sparse")
