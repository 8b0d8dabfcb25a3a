"""Monte Carlo arithmetic: a tape executed with random rounding, to see what rounding alone does to a step.

After each op that rounds, every floating-point result x becomes

    x * (1 + 1.5 * eps * (U - 1/2)),   eps = finfo(dtype).eps,  U uniform in [0, 1)

rounded to its dtype, and so do the inputs of ops that reduce, on copies, for their own order of summation is
as arbitrary as their result's last bit. Random ops draw what they drew.

D. S. Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA CSD-970002,
1997; C. Denis, P. de Oliveira Castro, E. Petit, "Verificarlo", arXiv 1509.01347.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping
from typing import Any

import torch

from .op_names import sums
from .replay import Computation, executed
from .tape import leaves, mapped

AMPLITUDE = 1.5
"""Width of the uniform perturbation, in multiples of eps."""

EXACT_OPS = """
abs alias arange argmax argmin as_strided as_strided_ bernoulli bernoulli_ bitwise_and bitwise_not
bitwise_or cat ceil ceil_ clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clone constant_pad_nd
contiguous copysign detach diag_embed diagonal_copy embedding empty empty_like empty_strided eq expand_copy
eye fill fill_ fix flip floor floor_ frac full full_like gather ge gt hardtanh hardtanh_ hardtanh_backward
heaviside im2col index index_copy index_copy_ index_fill index_fill_ index_select isfinite isinf isnan le
lift lift_fresh lift_fresh_copy logical_and logical_not logical_or lt masked_fill masked_fill_
masked_scatter masked_scatter_ masked_select max max_pool1d max_pool2d_with_indices max_pool3d_with_indices
maximum median min minimum mode multinomial nan_to_num nan_to_num_ native_dropout ne neg neg_ new_empty
new_empty_strided new_full new_ones new_zeros nonzero normal_ ones ones_like permute_copy pixel_shuffle
pixel_unshuffle put put_ rand rand_like randint randint_like randn randn_like random_ randperm
reflection_pad1d reflection_pad2d relu relu_ repeat repeat_interleave replication_pad1d replication_pad2d
resize_ roll round round_ scatter scatter_ select_backward select_copy select_scatter set_ sgn sign sign_
slice_backward slice_copy slice_scatter sort split_with_sizes_copy squeeze_copy stack t_copy threshold
threshold_ threshold_backward topk transpose_copy tril tril_ triu triu_ trunc trunc_ unfold_copy uniform_
unique_dim unsqueeze_copy view_as_complex_copy view_as_real_copy view_copy where where_ zero zero_ zeros
zeros_like _foreach_abs _foreach_abs_ _foreach_clamp_max_ _foreach_clamp_min_ _foreach_maximum
_foreach_maximum_ _foreach_minimum _foreach_minimum_ _foreach_neg _foreach_neg_ _foreach_zero_
_local_scalar_dense _pin_memory _reshape_copy _unsafe_view _unsafe_index
"""
EXACT = frozenset(EXACT_OPS.split())
"""Ops whose results are copies, choices or signs of their inputs."""

CASTS = frozenset(("_to_copy", "copy_", "copy", "_foreach_copy_", "set_data"))
"""Copies, which round when their result is in fewer digits than their source."""

POOL = 1 << 21
"""Random numbers that the perturbations are taken from."""


class RandomRounding:
    """One member of the ensemble; the same seed gives the same member. `strength` multiplies the perturbation."""

    def __init__(self, seed: int, strength: float = 1.0) -> None:
        self._places = random.Random(seed)
        self._amplitude = AMPLITUDE * strength

    def held(self, recorded: torch.dtype) -> torch.dtype:
        return recorded

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        call = one.call
        written = one.written(arguments, keywords)
        untouched = {id(tensor) for tensor in written}
        # The digits of what a copy reads, taken before it runs: it may write over its own source.
        copies = call.name in CASTS
        given = leaves([*arguments, *keywords.values()]) if copies else ()
        read = max((_eps(value) for value in given if id(value) not in untouched), default=0.0)

        def perturbed(value: Any) -> Any:
            if id(value) in untouched or not _eps(value):
                return value
            copy = value.clone()
            self._perturb(copy)
            return copy

        if call.draw is None and sums(call.name):
            arguments = mapped(perturbed, arguments)
            keywords = {name: mapped(perturbed, value) for name, value in keywords.items()}
        outputs = executed(one, arguments, keywords)
        # A copy rounds where its result has fewer digits than its source: 1.5 as float32 and as bfloat16 are the
        # same number, 1.001 are not.
        rounds = any(_eps(value) > read for value in [*outputs, *written]) if copies else call.name not in EXACT
        if call.draw is not None or not rounds:
            return outputs
        for tensor in written:
            self._perturb(tensor)
        for output, fresh in zip(outputs, call.fresh, strict=False):
            if fresh and isinstance(output, torch.Tensor):
                self._perturb(output)
        return outputs

    def _perturb(self, tensor: torch.Tensor) -> None:
        """Round the tensor's values at random, in place."""
        if not _eps(tensor):
            return
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        # Numbers of -1/2 to 1/2 in the tensor's shape, and laid out as it is where it leaves no gaps
        numbers = self._numbers(tensor.numel(), tensor.device)
        last = sum((n - 1) * step for n, step in zip(tensor.size(), tensor.stride(), strict=True))
        if last + 1 == tensor.numel():
            numbers = numbers.as_strided(tensor.size(), tensor.stride(), numbers.storage_offset())
        else:
            numbers = numbers.view(tensor.size())
        scale = self._amplitude * torch.finfo(tensor.dtype).eps
        # The change is added: a factor next to 1 would itself be rounded, and not alike above and below 1.
        if tensor.dtype == numbers.dtype and tensor.device.type == "cpu" and math.isfinite(tensor.sum().item()):
            tensor.addcmul_(tensor, numbers, value=scale)  # in one pass, where no infinity would give a NaN
        else:
            change = numbers * tensor
            change.nan_to_num_(0.0, 0.0, 0.0)
            tensor.add_(change, alpha=scale)

    def _numbers(self, count: int, device: torch.device) -> torch.Tensor:
        pool = _pool(device)
        if count <= POOL // 2:
            start = self._places.randrange(POOL - count + 1)
            return pool[start : start + count]
        parts = [POOL // 2] * (count // (POOL // 2)) + [count % (POOL // 2)]
        return torch.cat([self._numbers(part, device) for part in parts])


@functools.cache
def _pool(device: torch.device) -> torch.Tensor:
    """Uniform numbers of -1/2 to 1/2 that every perturbation takes a stretch of, from a place drawn for it: to draw
    each number anew would take longer than the step (4 ns a number, seven times the replay of a transformer)."""
    generator = torch.Generator(device).manual_seed(POOL)
    return torch.rand(POOL, generator=generator, device=device).sub_(0.5)


def _eps(value: Any) -> float:
    """The distance of the next number from 1 in a tensor's dtype, 0 for what has no digits to round."""
    if not isinstance(value, torch.Tensor) or not value.numel() or not has_digits(value):
        return 0.0
    return float(torch.finfo(value.dtype).eps)


def has_digits(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds numbers that rounding can move."""
    return tensor.is_floating_point() or tensor.is_complex()
