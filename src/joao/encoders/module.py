from __future__ import annotations

import inspect
from typing import final

import torch
from torch import Tensor, nn

from joao.encoders.base import Encoder
from joao.errors import UserError
from joao.graphs import GraphBatch

ARGUMENTS = ("x", "edge_index", "edge_attr", "edge_weight", "batch", "batch_size")


@final
class ModuleEncoder(Encoder):
    """A user's own module, called with torch-geometric's words.

    Of ``x``, ``edge_index``, ``edge_attr``, ``edge_weight``, ``batch`` (the graph of every node) and ``batch_size``
    the module gets those that its ``forward`` names, and ``edge_weight`` only where edges have a single attribute. It
    returns one row a graph.

    Args:
        module: used as it is, with the weights it has.
        example: some graphs, on which the length of the embeddings is found out.
    """

    def __init__(self, module: nn.Module, example: GraphBatch) -> None:
        super().__init__()
        self.module = module
        known = inspect.signature(module.forward).parameters
        self.arguments = tuple(name for name in ARGUMENTS if name in known)
        self.uses_edge_attr = "edge_attr" in known or "edge_weight" in known
        for name, parameter in known.items():
            is_named = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            if is_named and parameter.default is parameter.empty and name not in ARGUMENTS:
                raise UserError(
                    f"encoder: forward of {type(module).__name__} wants '{name}'. Known: {', '.join(ARGUMENTS)}."
                )
        was_training = module.training
        with torch.no_grad():
            embeddings = self.eval()(example)
        self.train(was_training)
        if not isinstance(embeddings, Tensor):
            raise UserError(
                f"encoder: {type(module).__name__} returned a {type(embeddings).__name__}; a tensor is wanted."
            )
        shape = embeddings.shape
        if len(shape) != 2 or shape[0] != example.num_graphs:
            raise UserError(
                f"encoder: {type(module).__name__} returned {tuple(shape)} for {example.num_graphs} graphs; one row "
                "a graph is wanted. Pool the nodes, for instance with torch_geometric.nn.global_add_pool."
            )
        self.num_dimensions = shape[1]

    def forward(self, batch: GraphBatch) -> Tensor:
        attr = batch.edge_attr
        values = {
            "x": batch.x,
            "edge_index": batch.edge_index,
            "edge_attr": attr,
            "edge_weight": None if attr is None or attr.shape[1] != 1 else attr[:, 0],
            "batch": batch.graph_of_node,
            "batch_size": batch.num_graphs,
        }
        embeddings: Tensor = self.module(**{name: values[name] for name in self.arguments})
        return embeddings
