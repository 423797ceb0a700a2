"""The Triton forms, a file each. Only imported where tensors are on an NVIDIA GPU.

Every sum is in a fixed order: the same input gives the same bits.
"""

from joao.kernels._triton.first_passage import first_passage as first_passage
from joao.kernels._triton.gin_layer import add_and_relu as add_and_relu
from joao.kernels._triton.gin_layer import relu_backward as relu_backward
from joao.kernels._triton.lay_out import lay_out as lay_out
from joao.kernels._triton.random_ranks import ranks as ranks
from joao.kernels._triton.relu_norm import normalise as normalise
from joao.kernels._triton.relu_norm import normalise_backward as normalise_backward
from joao.kernels._triton.sums import graph_sum as graph_sum
from joao.kernels._triton.sums import neighbour_sum as neighbour_sum
from joao.kernels._triton.svm_dual import solve_duals as solve_duals
