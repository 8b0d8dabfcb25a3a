"""The number of terms that one element of a result sums, from the shapes of the op's inputs.

A kernel may add n terms in any order. If it adds them one after the other in float32, the error of the sum is up to
sqrt(n) times the effect of rounding the terms, because each of n partial sums is rounded as well (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 4.2). With 32,768 terms the measured errors were 25 such roundings for
a weight's gradient by cuDNN, 30 for embeddings and for layer norms on one thread of a CPU, and up to 3 for kernels that
add in blocks or as a tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Sizes = Sequence[tuple[int, ...]]
"""The sizes of the tensors that an op reads, in the order of its arguments."""


def _of_product(left: int) -> Callable[[Sizes], int]:
    return lambda sizes: sizes[left][-1]


def _all_of(place: int) -> Callable[[Sizes], int]:
    return lambda sizes: math.prod(sizes[place])


def _positions(size: tuple[int, ...]) -> int:
    """Return the number of elements of a channel in [N, C, ...]."""
    return size[0] * math.prod(size[2:])


def _of_convolution(sizes: Sizes) -> int:
    """Return the channels times the elements of a kernel; a transposed kernel has the channels in its first
    dimension."""
    weight = sizes[1]
    return max(weight[0], weight[1]) * math.prod(weight[2:])


def _of_convolution_backward(sizes: Sizes) -> int:
    """Return the larger number of terms: a weight's gradient sums all positions of the batch, and the input's gradient
    sums channels and a kernel."""
    return max(_positions(sizes[0]), _positions(sizes[1]), _of_convolution(sizes[1:]))


LENGTHS: Mapping[str, Callable[[Sizes], int]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "linear"), _of_product(0)),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "addmv"), _of_product(1)),
    "convolution": _of_convolution,
    "convolution_backward": _of_convolution_backward,
    "embedding_dense_backward": _all_of(1),  # its indices, which may all be equal
    "native_layer_norm_backward": _all_of(2),  # its means, one for each row
    **dict.fromkeys(
        (
            *("native_batch_norm", "native_batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward"),
            *("native_group_norm", "native_group_norm_backward"),
        ),
        lambda sizes: _positions(sizes[0]),
    ),
}
"""The number of terms by the name of an op. `sum` and `mean` are left out, because torch adds as a tree there."""


def terms_added(name: str, sizes: Sizes) -> int:
    """Return the most terms that an element of the op's results sums, 0 if that is not known."""
    length = LENGTHS.get(name)
    try:
        return 0 if length is None else length(sizes)
    except IndexError:  # the arguments are not those of torch's own op
        return 0
