"""Triton forms of the kernels, imported only if tensors are on an NVIDIA GPU.

No kernel uses floating-point atomics and every sum has a fixed order, so equal inputs give bit-identical outputs.
"""

from joao.kernels._triton.batch_norm import normalise as normalise
from joao.kernels._triton.batch_norm import normalise_backward as normalise_backward
from joao.kernels._triton.graph_ops import copy_graphs as copy_graphs
from joao.kernels._triton.graph_ops import first_passage as first_passage
from joao.kernels._triton.graph_ops import rank_within_groups as rank_within_groups
from joao.kernels._triton.layers import add_and_relu as add_and_relu
from joao.kernels._triton.layers import graph_max as graph_max
from joao.kernels._triton.layers import graph_sum as graph_sum
from joao.kernels._triton.layers import message_sum as message_sum
from joao.kernels._triton.layers import message_sum_backward as message_sum_backward
from joao.kernels._triton.layers import neighbour_sum as neighbour_sum
from joao.kernels._triton.layers import relu_backward as relu_backward
from joao.kernels._triton.nt_xent import losses_and_gradient as losses_and_gradient
from joao.kernels._triton.nt_xent import unit_vectors as unit_vectors
from joao.kernels._triton.nt_xent import unit_vectors_backward as unit_vectors_backward
from joao.kernels._triton.svm_dual import solve_duals as solve_duals
