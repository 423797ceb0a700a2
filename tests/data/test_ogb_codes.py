"""OGB's codes of atoms and bonds from SMILES. Oracles: a hand computation, and the features that OGB published."""

import os
from dataclasses import replace

import numpy as np
import pytest

from joao.core.codes import OGB_ATOM_SIZES, OGB_BOND_SIZES
from joao.data import read_whole
from joao.data.features import Features, make_store
from joao.data.molecules import ReadOptions, make_molecules, to_ogb_codes
from tests.data.test_molecules import ODD
from tests.messages import refused

pytest.importorskip("rdkit.Chem")
ROOT = os.environ.get("JOAO_DATA")


def test_codes_match_a_hand_computation():
    # @ is counter-clockwise, code 2
    converted = to_ogb_codes(make_molecules("one", ["[NH3+][C@H](F)/C=C/C#N"]))
    # element - 1, chirality, degree, charge + 5, hydrogens, radicals, sp sp2 sp3, aromatic, ring
    assert converted.node_labels.tolist() == [
        [6, 0, 4, 6, 3, 0, 2, 0, 0],
        [5, 2, 4, 5, 1, 0, 2, 0, 0],
        [8, 0, 1, 5, 0, 0, 2, 0, 0],
        [5, 0, 3, 5, 1, 0, 1, 0, 0],
        [5, 0, 3, 5, 1, 0, 1, 0, 0],
        [5, 0, 2, 5, 0, 0, 0, 0, 0],
        [6, 0, 1, 5, 0, 0, 0, 0, 0],
    ]
    ends = zip(converted.target.tolist(), converted.source.tolist(), strict=True)
    bonds = dict(zip(ends, converted.edge_attr.tolist(), strict=True))
    assert bonds[3, 4] == bonds[4, 3] == [1, 2, 1]  # double, E, conjugated
    assert bonds[5, 6] == [2, 0, 1]
    assert bonds[4, 5] == [0, 0, 1]
    assert bonds[0, 1] == [0, 0, 0]


def test_ring_and_aromatic_atoms():
    pyrrole = to_ogb_codes(make_molecules("one", ["c1cc[nH]c1"]))
    assert (pyrrole.node_labels[:, 6:] == [1, 1, 1]).all()
    assert (pyrrole.edge_attr == [3, 0, 1]).all()


def test_stereochemistry_of_an_extension_is_found():
    """CXSMILES describe it without / and @."""
    options = ReadOptions(as_ogb=True)
    converted = make_molecules("two", ["CC=CC |t:1|", "C/C=C/C", "CC=CC"], options=options)
    by_extension, by_text, none = converted.edge_attr[:, 1].reshape(3, 6).tolist()
    assert by_text == by_extension
    assert any(by_text)
    assert not any(none)


def test_graphs_and_order_stay_and_codes_are_in_range():
    before = make_molecules("odd", ODD * 9)  # more than one chunk
    after = to_ogb_codes(before)
    for name in ("first_node", "first_edge", "source", "target"):
        assert (getattr(before, name) == getattr(after, name)).all()
    assert (after.node_labels[:, 0] == before.node_labels[:, 0]).all()  # the element, from the text of the SMILES
    known = before.edge_attr[:, 0] > 0
    assert (after.edge_attr[known, 0] == before.edge_attr[known, 0]).all()
    assert (after.node_labels < OGB_ATOM_SIZES).all()
    assert (after.edge_attr < OGB_BOND_SIZES).all()
    # Both directions of a bond have the same codes.
    graph = np.repeat(np.arange(len(after)), np.diff(after.first_edge)).tolist()
    ends = zip(graph, after.source.tolist(), after.target.tolist(), strict=True)
    edges = dict(zip(ends, after.edge_attr.tolist(), strict=True))
    assert all(edges[g, t, s] == codes for (g, s, t), codes in edges.items())


@pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")
def test_codes_are_those_that_ogb_published():
    published = read_whole("ogbg-molbace", ROOT)[:200]
    converted = to_ogb_codes(make_molecules("bace", published.smiles))
    assert (converted.node_labels == published.node_labels).all()
    assert (converted.edge_attr == published.edge_attr).all()
    assert (converted.source == published.source).all()


def test_molecules_without_smiles_are_refused():
    graphs = replace(make_molecules("bare", ["CCO", "CC"]), smiles=())
    with refused("bare", "SMILES", "ogb_atoms"):
        make_store(graphs, Features.from_dataset(graphs, "ogb_atoms"))
    with refused("MUTAG", "graphs"):
        to_ogb_codes(read_whole("MUTAG"))
