"""The properties of an op that follow from its name: whether it sums elements, draws random numbers, or communicates.

This module does not need torch.
"""

from __future__ import annotations

import functools

REDUCE_PARTS = """
addbmm addmm addmv attention avg baddbmm bilinear bmm cdist conv1d conv2d conv3d convolution cross cumprod
cumsum dot einsum fft gru linalg linear logcumsumexp logsumexp loss lstm matmul mean mm mv nansum nll norm
pdist prod rnn segment softmax std sum trace trilinear upsample var vdot
"""
REDUCE = frozenset(REDUCE_PARTS.split())
"""Parts of the names of ops that sum over elements. A replay with random rounding also perturbs the inputs of such ops.
"""

REDUCE_WHOLE = frozenset(
    (
        "embedding_dense_backward",
        "grid_sampler_2d",
        "grid_sampler_2d_backward",
        "index_add",
        "index_add_",
        "index_put",
        "index_put_",
        "scatter_add",
        "scatter_add_",
        "scatter_reduce",
        "unfold_backward",
    )
)


@functools.cache
def sums(name: str) -> bool:
    """Return whether the op of this name sums over elements."""
    return name in REDUCE_WHOLE or not REDUCE.isdisjoint(name.strip("_").split("_"))


DRAWING_NAMES = """
alpha_dropout bernoulli binomial cauchy dropout exponential feature_alpha_dropout feature_dropout geometric
log_normal multinomial native_dropout normal poisson rand rand_like randint randint_like randn randn_like random
randperm rrelu rrelu_with_noise uniform
"""
DRAWING = frozenset(DRAWING_NAMES.split())
"""The names of ops that draw from a generator whenever they are executed."""


def draws(name: str) -> bool:
    """Return whether the op of this name, in place or not, draws random numbers."""
    return name.removesuffix("_") in DRAWING


IN_MEMORY = {"aten._efficientzerotensor.default": "aten.zeros.default"}
"""The op that a tape contains in place of an op whose result has no memory: zeros that are never stored, such as the
gradient of `torch.sgn`. A replay gives each result memory, and kernels read it."""

NAMESPACES = ("c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd")
"""The namespaces of the ops with which torch's process groups communicate."""

UNREPLAYED = "ops of several ranks are not replayed; the verdict rests on the rank-by-rank comparison"
PYTHON_GROUP = f"the process group's class is written in Python, so its collectives are not ops: {UNREPLAYED}"
SHARDED = f"the step computes with sharded tensors: {UNREPLAYED}"


def unreplayed(op: str) -> str:
    """Return why a step has no tape, given the name of its first collective, such as `c10d::allreduce_`."""
    return f"the step calls {op.partition('::')[2].rstrip('_') or op}: {UNREPLAYED}"
