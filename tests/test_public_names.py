"""Every public name says what it is, and shows it by an example. The doctests of the suite run the examples."""

import doctest
import functools
import gc
import importlib
import inspect
import re
from pathlib import Path

import pytest

import joao

API = (Path(__file__).parent.parent / "docs/api.md").read_text(encoding="utf-8")
LISTED = re.findall(r"^::: ([\w.]+)$", API, re.MULTILINE)
PUBLIC = {f"joao.{name}": getattr(joao, name) for name in joao.__all__ if name != "__version__"}
PUBLIC |= {name: getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in LISTED}


def examples(public):
    """The examples in the docstring, which the doctests of its module run."""
    name = f"{public.__module__}.{public.__qualname__}"
    found = doctest.DocTestFinder().find(inspect.getmodule(public))
    return [example for each in found if each.name == name for example in each.examples]


def undocumented(kind):
    """The public methods and properties of a class, as written or inherited from this package, without a docstring."""
    members = {
        name: member
        for owner in kind.__mro__
        if owner.__module__.startswith("joao")
        for name, member in vars(owner).items()
        if not name.startswith("_")
    }
    kinds = (property, functools.cached_property, classmethod, staticmethod)
    described = {name for name, each in members.items() if inspect.isfunction(each) or isinstance(each, kinds)}
    return sorted(name for name in described if not inspect.getdoc(getattr(kind, name)))


def test_the_reference_lists_every_public_name():
    assert len(LISTED) > 40
    assert set(PUBLIC) == set(LISTED)


def test_it_says_what_it_is_and_shows_it():
    shown = {name: examples(public) for name, public in PUBLIC.items()}
    assert [name for name, found in shown.items() if not any(each.want or each.exc_msg for each in found)] == []
    may_differ = [name for name, found in shown.items() if any("doctest:" in each.source for each in found)]
    assert may_differ == []


def test_its_methods_say_what_they_do():
    missing = {name: undocumented(public) for name, public in PUBLIC.items() if inspect.isclass(public)}
    assert {name: methods for name, methods in missing.items() if methods} == {}


def test_what_is_missing_is_seen():
    class Bare:
        def method(self):
            pass

    Bare.__module__ = "joao.core.errors"
    assert undocumented(Bare) == ["method"]
    assert examples(Bare) == []
    assert len(examples(joao.UserError)) == 2


@pytest.mark.parametrize("was_enabled", [True, False])
def test_loading_a_name_leaves_the_garbage_collector_as_it_was(was_enabled, monkeypatch):
    seen = []
    monkeypatch.setattr(importlib, "import_module", lambda name: seen.append(gc.isenabled()))
    monkeypatch.setitem(joao._HOME, "missing", "joao")
    try:
        (gc.enable if was_enabled else gc.disable)()
        with pytest.raises(AttributeError):
            joao.__getattr__("missing")  # the import fails
        assert (seen, gc.isenabled()) == ([False], was_enabled)
    finally:
        gc.enable()
