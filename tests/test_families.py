import inspect

import pytest

from joao.augmentations import AUGMENTATIONS, Augmentation
from joao.baselines import Baseline
from joao.core.registry import catalogue, snake_case
from joao.encoders import ENCODERS, Encoder
from joao.heads import HEADS, Heads
from joao.objectives import OBJECTIVES, Objective
from joao.policies import POLICIES, Policy
from repro.baselines import BASELINES


class Base:
    pass


class TwoWords(Base):
    pass


class Gin3(Base):
    pass


def test_names_are_the_classes_in_snake_case():
    names = {"NodeDrop": "node_drop", "Gin": "gin", "NtXent": "nt_xent", "Gin3Deep": "gin3_deep", "A": "a"}
    assert {name: snake_case(name) for name in names} == names


def test_catalogue_contains_concrete_subclasses_sorted_by_name():
    namespace = {"Base": Base, "x": TwoWords, "Gin3": Gin3, "Gin": 3, "made": TwoWords(), "other": str}
    assert list(catalogue(Base, namespace).items()) == [("gin3", Gin3), ("two_words", TwoWords)]


@pytest.fixture(
    params=[
        (AUGMENTATIONS, Augmentation),
        (BASELINES, Baseline),
        (ENCODERS, Encoder),
        (HEADS, Heads),
        (OBJECTIVES, Objective),
        (POLICIES, Policy),
    ],
    ids=lambda param: param[1].__name__,
)
def family(request):
    return request.param


def test_members_are_final_concrete_and_documented(family):
    members, base = family
    assert members
    for name, member in members.items():
        assert issubclass(member, base)
        assert not inspect.isabstract(member)
        assert member.__final__
        assert member.__doc__
        assert snake_case(member.__name__) == name
