"""Folders of protein networks made by hand."""

from __future__ import annotations

import torch


def write_ppi(folder, values, slices):
    """A folder of protein networks, as published, with these tensors."""
    path = folder / "processed" / "geometric_data_processed.pt"
    path.parent.mkdir(parents=True)
    torch.save((values, slices), path)
    return folder


def ppi_tensors():
    """Three networks of two proteins and an edge."""
    values = {
        "x": torch.ones(6, 1),
        "edge_index": torch.tensor([[0, 1] * 3, [1, 0] * 3]),
        "edge_attr": torch.ones(6, 9),
        "species_id": torch.tensor([9606, 9606, 10090]),
        "center_node_idx": torch.tensor([0, 1, 0]),
    }
    return values, {"x": torch.tensor([0, 2, 4, 6]), "edge_index": torch.tensor([0, 2, 4, 6])}
