import pytest
import torch

from joao.core.errors import UserError
from joao.policies import RulePool

NAMES = ["identity", "subgraph", "attribute_mask", "node_drop", "edge_perturb"]


@pytest.mark.parametrize(("pool", "members"), [("molecules", [1, 3]), ("sparse", [1, 3, 4]), ("dense", [1, 2, 3, 4])])
def test_both_views_are_drawn_uniformly_from_the_pool_of_the_rule(pool, members):
    expected = torch.zeros(5, 5, dtype=torch.float64)
    for i in members:
        for j in members:
            expected[i, j] = 1 / len(members) ** 2
    torch.testing.assert_close(RulePool(NAMES, pool).probabilities, expected)


def test_unknown_pools_and_missing_members_are_refused():
    with pytest.raises(UserError, match=r"unknown pool 'molecule'. Did you mean 'molecules'"):
        RulePool(NAMES, "molecule")
    with pytest.raises(UserError, match="'edge_perturb' is not in the pool"):
        RulePool(NAMES[:4], "sparse")
