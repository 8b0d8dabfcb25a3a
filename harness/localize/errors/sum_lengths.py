"""The number of terms in the sum for one element of a result, from the shapes of the op's inputs.

A kernel may add n terms in any order. If it adds them one after the other in float32, the error of the sum is up to
sqrt(n) times the effect of rounding the terms, because each of n partial sums is rounded as well (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 4.2). With 32,768 terms, the measured errors were 25 times that effect
for a weight's gradient by cuDNN, 30 times for embeddings and for layer norms on one thread of a CPU, and at most 3
times for kernels that add in blocks or in a tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Sizes = Sequence[tuple[int, ...]]
"""The sizes of the tensors that an op reads, in the order of its arguments."""


def product_terms(left: Sequence[int]) -> int:
    """Return the number of products that are added up in an element of a matrix product with this left factor."""
    return left[-1]


def positions(size: Sequence[int]) -> int:
    """Return the number of elements in one channel of a tensor of this size, [N, C, ...]."""
    return size[0] * math.prod(size[2:])


def kernel_terms(weight: Sequence[int], groups: int = 1, *, over_first: bool) -> int:
    """Return the number of products that are added up in an element of a convolution with this weight.

    The sum runs over the weight's second dimension and its kernel. For a transposed convolution, and for the gradient
    of the input, it runs over one group of the weight's first dimension (`over_first`) and the kernel.
    """
    return (weight[0] // groups if over_first else weight[1]) * math.prod(weight[2:])


def _of_convolution(sizes: Sizes) -> int:
    """Return the number of terms of a sum over the first or the second dimension of the weight, whichever is larger."""
    return max(kernel_terms(sizes[1], over_first=over_first) for over_first in (False, True))


def _of_convolution_backward(sizes: Sizes) -> int:
    """Return the larger number of terms: a weight's gradient is a sum over all positions of the batch, and the input's
    gradient is a sum over channels and a kernel."""
    return max(positions(sizes[0]), positions(sizes[1]), _of_convolution(sizes[1:]))


LENGTHS: Mapping[str, Callable[[Sizes], int]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "linear"), lambda sizes: product_terms(sizes[0])),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "addmv"), lambda sizes: product_terms(sizes[1])),
    "convolution": _of_convolution,
    "convolution_backward": _of_convolution_backward,
    "embedding_dense_backward": lambda sizes: math.prod(sizes[1]),  # one for each index, since all may be equal
    "native_layer_norm_backward": lambda sizes: math.prod(sizes[2]),  # one for each mean, that is, for each row
    **dict.fromkeys(
        (
            *("native_batch_norm", "native_batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward"),
            *("native_group_norm", "native_group_norm_backward"),
        ),
        lambda sizes: positions(sizes[0]),
    ),
}
"""The number of terms by the name of an op. `sum` and `mean` are left out, because torch adds their terms in a tree."""


def terms_added(name: str, sizes: Sizes) -> int:
    """Return the largest number of terms in the sum for an element of the op's results; 0 if it is not known."""
    length = LENGTHS.get(name)
    try:
        return 0 if length is None else length(sizes)
    except IndexError:  # the arguments are not those of torch's own op
        return 0
