"""The estimators are estimators of scikit-learn."""

import pytest
from sklearn.utils import estimator_checks

import joao

# Those that need no table of numbers.
CHECKS = (
    "no_attributes_set_in_init",
    "parameters_default_constructible",
    "get_params_invariance",
    "set_params",
    "estimator_repr",
    "estimator_cloneable",
    "mixin_order",
    "valid_tag_types",
    "estimator_tags_renamed",
)


@pytest.mark.parametrize("kind", [joao.JOAO, joao.JOAOClassifier, joao.JOAORegressor])
def test_checks_of_scikit_learn(kind):
    for check in CHECKS:
        getattr(estimator_checks, f"check_{check}")(kind.__name__, kind())


def test_changed_parameters_are_shown():
    assert repr(joao.JOAO(epochs=3, method="joaov2")) == "JOAO(epochs=3, method='joaov2')"
    assert repr(joao.JOAOClassifier("runs/mutag", epochs=3)) == "JOAOClassifier(epochs=3, pretrained='runs/mutag')"
