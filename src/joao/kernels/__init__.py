"""Operations of the padded path that torch has no single kernel for.

Each has a plain torch form, which defines it and runs anywhere, and a Triton form, which runs on NVIDIA GPUs.
"""

from joao.kernels.first_passage import first_passage as first_passage
from joao.kernels.gin_layer import gin_layer as gin_layer
from joao.kernels.lay_out import lay_out as lay_out
from joao.kernels.ranks import ranks as ranks
