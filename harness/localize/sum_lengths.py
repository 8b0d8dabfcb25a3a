"""The number of terms that one element of a result adds up, by the shapes of the op's inputs.

A kernel may add up n terms in any order. One after the other in float32, their sum errs by up to sqrt(n) times what
rounding of the terms causes, as each of n partial sums is rounded, too (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 4.2). With 32,768 terms, 25 such roundings were measured of a weight's gradient by cuDNN, 30
of embeddings and of layer norms on one thread of a CPU, and up to 3 where a kernel adds up in blocks or as a tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Sizes = Sequence[tuple[int, ...]]
"""Of the tensors that an op reads, in the order of its arguments."""


def _of_product(left: int) -> Callable[[Sizes], int]:
    return lambda sizes: sizes[left][-1]


def _all_of(place: int) -> Callable[[Sizes], int]:
    return lambda sizes: math.prod(sizes[place])


def _positions(size: tuple[int, ...]) -> int:
    """The elements of a channel in [N, C, ...]."""
    return size[0] * math.prod(size[2:])


def _of_convolution(sizes: Sizes) -> int:
    """The channels of one side times the elements of a kernel: a transposed one has the channels in its first place."""
    weight = sizes[1]
    return max(weight[0], weight[1]) * math.prod(weight[2:])


def _of_convolution_backward(sizes: Sizes) -> int:
    """A weight's gradient adds up all positions of the batch, where the input's adds up channels and a kernel."""
    return max(_positions(sizes[0]), _positions(sizes[1]), _of_convolution(sizes[1:]))


LENGTHS: Mapping[str, Callable[[Sizes], int]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "linear"), _of_product(0)),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "addmv"), _of_product(1)),
    "convolution": _of_convolution,
    "convolution_backward": _of_convolution_backward,
    "embedding_dense_backward": _all_of(1),  # of its indices, which may all be one
    "native_layer_norm_backward": _all_of(2),  # of its means, one for each row
    **dict.fromkeys(
        (
            *("native_batch_norm", "native_batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward"),
            *("native_group_norm", "native_group_norm_backward"),
        ),
        lambda sizes: _positions(sizes[0]),
    ),
}
"""The numbers of terms by the name of an op. `sum` and `mean` are left out: torch adds them up as a tree."""


def terms_added(name: str, sizes: Sizes) -> int:
    """Return the most terms that an element of the op's results adds up; 0 where that is not known."""
    length = LENGTHS.get(name)
    try:
        return 0 if length is None else length(sizes)
    except IndexError:  # other arguments than torch's own op has
        return 0
