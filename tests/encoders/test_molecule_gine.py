"""The equation written out in loops over atoms and bonds."""

import pytest
import torch

from joao.core.codes import OGB_ATOM_SIZES, OGB_BOND_SIZES
from joao.data import make_store, read
from joao.data.features import Features
from joao.encoders import MoleculeGine
from tests.messages import refused

pytest.importorskip("rdkit.Chem")


def batch_of(smiles):
    graphs = read(smiles)
    return make_store(graphs, Features("ogb_atoms")).batch(torch.arange(len(graphs)))


def by_loops(encoder, batch):
    first = [sum(size + 1 for size in OGB_ATOM_SIZES[:k]) + 1 for k in range(9)]
    x = [sum(encoder.atoms.weight[first[k] + int(code)] for k, code in enumerate(atom)) for atom in batch.x]
    layers = []
    for edges, hidden, outer, norm in zip(encoder.edges, encoder.hidden, encoder.outer, encoder.norms, strict=True):
        total = [each.clone() for each in x]
        for u, v, codes in zip(
            batch.source.tolist(), batch.target.tolist(), batch.edge_attr.long().tolist(), strict=True
        ):
            columns = [sum(OGB_BOND_SIZES[:k]) + code for k, code in enumerate(codes)]
            total[v] = total[v] + torch.relu(x[u] + edges.weight[:, columns].sum(1))
        y = torch.relu(norm(torch.stack([outer(torch.relu(hidden(each))) for each in total])))
        layers.append(y)
        x = [old + new for old, new in zip(x, y, strict=True)]
    atoms = torch.cat(layers, dim=1)
    graphs = [atoms[batch.graph_of_node == g] for g in range(batch.num_graphs)]
    return torch.stack([torch.log1p(torch.cat([each.sum(0), each.max(0).values])) for each in graphs])


@torch.no_grad()
def test_embedding_matches_a_loop():
    torch.manual_seed(0)
    batch, encoder = batch_of(["C[C@H](N)C(=O)[O-]", "c1ccccc1/C=C/F", "[Na+]"]), MoleculeGine(width=6, layers=3)
    encoder(batch)  # moves the running statistics
    assert torch.allclose(encoder.eval()(batch), by_loops(encoder, batch), atol=1e-5)


@torch.no_grad()
def test_charge_and_hydrogens_change_the_embedding():
    encoder = MoleculeGine(width=6, layers=2).eval()
    acid, salt = encoder(batch_of(["CC(=O)O", "CC(=O)[O-]"]))
    assert not torch.allclose(acid, salt)


def test_bfloat16_is_close():
    torch.manual_seed(0)
    batch, encoder = batch_of(["C[C@H](N)C(=O)[O-]", "c1ccccc1/C=C/F"]), MoleculeGine(width=16, layers=3).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = encoder(batch)
    assert low.dtype == torch.float32
    assert torch.allclose(low, encoder(batch), atol=0.1)


def test_refuses_other_columns_and_the_input_readout():
    for options, words in (({"num_features": 2}, ("9", "2")), ({"readout": "sum+input"}, ("input",))):
        with refused("MoleculeGine", *words):
            MoleculeGine(**options)


@torch.no_grad()
@pytest.mark.parametrize("readout", ["log(sum+max)", "mean", "sum+mean+max"])
def test_embeddings_equal_the_forward_pass(readout):
    torch.manual_seed(0)
    smiles = ["C[C@H](N)C(=O)[O-]", "c1ccccc1/C=C/F", "[Na+]", "c1ccccc1CCN", "CCCC"]
    batch, encoder = batch_of(smiles), MoleculeGine(width=6, layers=3, readout=readout)
    encoder(batch)  # moves the running statistics
    encoder.eval()
    torch.testing.assert_close(encoder.embed(batch), encoder(batch))
