"""Custom encoders: any torch module, or layers of a torch-geometric convolution."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from joao.core.errors import UserError, one_line, suggest
from joao.core.graphs import GraphBatch
from joao.encoders.base import Encoder, LayeredEncoder
from joao.encoders.gin import make_mlp

ARGUMENTS = ("x", "edge_index", "edge_attr", "edge_weight", "batch", "batch_size")


@final
class ModuleEncoder(Encoder):
    """Wraps a custom torch module that is called like a torch-geometric model.

    The module gets those of ``x``, ``edge_index``, ``edge_attr``, ``edge_weight``, ``batch`` (the graph of every node)
    and ``batch_size`` that its ``forward`` names, and returns one row per graph. ``edge_weight`` is None unless edges
    have a single attribute.

    Args:
        module: used with its present weights.
        example: some graphs to determine the length of the embeddings.
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
                    f"encoder: {type(module).__name__}.forward requires an unknown argument '{name}'. "
                    f"Known: {', '.join(ARGUMENTS)}."
                )
        was_training = module.training
        with torch.no_grad():
            embeddings = self.eval()(example)
        self.train(was_training)
        if not isinstance(embeddings, Tensor):
            raise UserError(f"encoder: {type(module).__name__} must return a tensor, got {type(embeddings).__name__}.")
        shape = embeddings.shape
        if len(shape) != 2 or shape[0] != example.num_graphs:
            raise UserError(
                f"encoder: {type(module).__name__} must return one row per graph, got shape {tuple(shape)} for "
                f"{example.num_graphs} graphs. Pool the nodes, for example with torch_geometric.nn.global_add_pool."
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
        return cast(Tensor, self.module(**{name: values[name] for name in self.arguments}))


BY_HAND = "In Python, pass a function that takes the numbers of input and output columns and builds it."


@final
class Convolutions(LayeredEncoder):
    """Layers of a torch-geometric convolution, each followed by ReLU and batch normalisation.

    Pooling and ``readout`` are those of :class:`Gin`. Edge attributes are passed to named convolutions with
    ``edge_dim``, and to convolutions from a function whose ``forward`` takes ``edge_attr``. A single attribute is also
    passed as ``edge_weight``.

    Args:
        convolution: a class of :mod:`torch_geometric.nn` or its name, such as ``"GATConv"``, that needs only the
            numbers of input and output columns, and a network ``nn`` if that is a constructor argument (``GINEConv``);
            or a function that takes these numbers and returns a module called with ``x`` and ``edge_index``.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.Graph([(0, 1), (1, 2)]), networkx.Graph([(0, 2), (2, 1)]), networkx.cycle_graph(3)])
    >>> path, same_path, triangle = Convolutions(batch.x.shape[1], convolution="SAGEConv", layers=2).eval()(batch)
    >>> torch.allclose(path, same_path, atol=1e-4), torch.allclose(path, triangle, atol=1e-4), len(path)
    (True, False, 64)
    """

    def __init__(
        self,
        num_features: int,
        num_edge_features: int = 0,
        convolution: str | Callable[[int, int], nn.Module] = "GCNConv",
        width: int = 32,
        layers: int = 3,
        readout: str = "sum",
    ) -> None:
        super().__init__(num_features, width, layers, readout)
        convolution = geometric_name(convolution)
        named = isinstance(convolution, str)
        make = _convolution_factory(convolution, num_edge_features) if isinstance(convolution, str) else convolution
        widths = [num_features] + [width] * layers
        self.convolutions = nn.ModuleList(make(before, width) for before in widths[:-1])
        self.edge_arguments = [_edge_argument(each, num_edge_features, named) for each in self.convolutions]
        self.uses_edge_attr = any(self.edge_arguments)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))

    def encode_layers(self, batch: GraphBatch) -> Iterator[Tensor]:
        x, edge_index, attr = batch.x, batch.edge_index, batch.edge_attr
        values = {"edge_attr": attr, "edge_weight": None if attr is None else attr[:, 0]}
        for convolution, norm, names in zip(self.convolutions, self.norms, self.edge_arguments, strict=True):
            edges = {name: values[name] for name in names}
            x = norm(torch.relu(convolution(x, edge_index, **edges)))
            yield x


def geometric_name(convolution: Any) -> Any:
    """The name of a convolution class of torch-geometric; anything else is returned."""
    is_known = isinstance(convolution, type) and convolution.__module__.startswith("torch_geometric.nn.conv.")
    return convolution.__name__ if is_known else convolution


def _convolution_factory(name: str, num_edge_features: int) -> Callable[[int, int], nn.Module]:
    import torch_geometric.nn.conv as conv

    known = [each for each in dir(conv) if each.endswith("Conv")]
    if name not in known:
        raise UserError(f"Convolutions: torch-geometric has no convolution '{name}'. {suggest(name, known)}")
    kind: Any = getattr(conv, name)
    parameters = inspect.signature(kind.__init__).parameters
    options = {"edge_dim": num_edge_features} if "edge_dim" in parameters and num_edge_features else {}

    has_network = "nn" in parameters and parameters["nn"].default is inspect.Parameter.empty

    def make(before: int, after: int) -> nn.Module:
        sizes = (before, after) if not has_network or "in_channels" in parameters else ()
        networks: list[dict[str, Any]] = [{}]
        if has_network:  # of a sum over neighbours, or of a node and one neighbour side by side
            networks = [{"nn": make_mlp(inputs, after)} for inputs in (before, 2 * before)]
        problem: Exception | None = None
        for network in networks:
            try:
                module: nn.Module = kind(*sizes, **network, **options)
                shape = _output_shape(module, before, num_edge_features)
            except Exception as error:  # a convolution with other arguments may raise anything
                problem = problem or error
                continue
            if shape == (2, after):
                return module
            problem = UserError(f"Convolutions: {name} returned shape {shape} instead of {(2, after)}. {BY_HAND}")
        if isinstance(problem, UserError):
            raise problem
        fix = f"The graphs have no edge attributes. {BY_HAND}" if "edge_dim" in parameters and not options else BY_HAND
        raise UserError(f"Convolutions: {name} needs further arguments ({one_line(problem)}). {fix}") from problem

    return make


@torch.no_grad()
def _output_shape(convolution: nn.Module, num_features: int, num_edge_features: int) -> tuple[int, ...]:
    edge = torch.tensor([[1, 0], [0, 1]])
    values = {"edge_attr": torch.ones(2, num_edge_features), "edge_weight": torch.ones(2)}
    names = _edge_argument(convolution, num_edge_features, named=True)
    output = convolution.eval()(torch.zeros(2, num_features), edge, **{name: values[name] for name in names})
    convolution.train()
    return tuple(output.shape)


def _edge_argument(convolution: nn.Module, num_edge_features: int, named: bool) -> tuple[str, ...]:
    known = inspect.signature(convolution.forward).parameters
    if named:
        takes_columns = "edge_dim" in inspect.signature(type(convolution).__init__).parameters
    else:
        takes_columns = getattr(convolution, "edge_dim", num_edge_features) is not None  # GINEConv does not store it
    if "edge_attr" in known and takes_columns and num_edge_features:
        return ("edge_attr",)
    return ("edge_weight",) if "edge_weight" in known and num_edge_features == 1 else ()
