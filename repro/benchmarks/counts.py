"""The minimum arithmetic and memory traffic of a step, computed from its sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

from joao.training.steps import View


@dataclass(frozen=True)
class Work:
    """Mean floating-point operations and bytes of a step."""

    flop: float
    bytes: float


def work_of_step(views: Sequence[tuple[View, View]], num_features: int, width: int, layers: int) -> Work:
    r"""Count the work of forward pass, backward pass and optimiser on a pair of views, averaged over ``views``.

    Operations. A view with N nodes, E directed edges and B graphs passes layers :math:`d \to w \to w`, with
    :math:`d` the columns of ``x`` in the first and :math:`w` after it. A linear map of n rows from a to b columns is
    :math:`2nab` forward and twice that backward, for the gradients of its weights and of its input (which the first
    map of all has no need of); a sum over neighbours is :math:`Ed` forward and, but for the first, backward. The head
    is two maps of B rows, :math:`D \to D` with :math:`D = w \cdot` layers, and the loss a product
    :math:`B \times D \times B`, all three times. What is done element by element is not counted.

    Bytes. Everything is float32 and every operation reads its input and writes its output once; what is gathered
    twice is in cache; what follows element by element is fused. Forward, a layer moves
    :math:`8E + 4N(3d + 7w)`: the sum over neighbours (d read, d written), two linear maps (d, w; w, w),
    normalisation (w twice read, once written) and the sum over nodes (w). Backward moves twice as much. Adam reads
    weight, gradient and two moments, and writes the gradient, the weight and the moments: :math:`32` bytes a weight.
    """
    dimensions = width * layers
    flop = traffic = 0.0
    for pair in views:
        for view in pair:
            nodes, edges, graphs = view.batch.num_nodes, view.batch.num_edges, view.batch.num_graphs
            for layer in range(layers):
                columns = width if layer else num_features
                directions = 3 if layer else 2  # forward, and the gradients that are needed
                flop += directions * 2 * nodes * columns * width + 3 * 2 * nodes * width * width
                flop += (directions - 1) * edges * columns
                traffic += 3 * (8 * edges + 4 * nodes * (3 * columns + 7 * width))
            flop += 3 * 2 * 2 * graphs * dimensions**2
        flop += 3 * 2 * pair[0].batch.num_graphs ** 2 * dimensions
    weights = num_weights(num_features, width, layers)
    return Work(flop / len(views), traffic / len(views) + 32 * weights)


def num_weights(num_features: int, width: int, layers: int) -> int:
    """Count the work of GIN with its normalisation, and of the shared head."""
    dimensions = width * layers
    encoder = num_features * width + (2 * layers - 1) * width**2 + 4 * layers * width
    return encoder + 2 * (dimensions**2 + dimensions)
