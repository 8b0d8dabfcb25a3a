"""Monte Carlo arithmetic: the execution of a tape with random rounding, to measure what rounding alone does to a step.

After each op that rounds, every floating-point result x becomes

    x * (1 + 1.5 * eps * (U - 1/2)),   eps = finfo(dtype).eps,  U uniform in [0, 1)

rounded to its dtype. The inputs of ops that reduce are treated in the same way, on copies: the order of summation is as
arbitrary as the last bit of the result. Random ops draw their recorded numbers. Exact results stay unchanged:
constants, copies, choices, casts that lose nothing. No kernel rounds a sigmoid to more than 1, so the results of an op
with a bounded range stay in this range. An argument that an op accepts only within a range stays in the range, too. No
sign changes: a positive number stays positive.

D. S. Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA CSD-970002,
1997; C. Denis, P. de Oliveira Castro, E. Petit, "Verificarlo", arXiv 1509.01347.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..op_names import sums
from ..tape import leaves, mapped
from .replay import Computation, executed

AMPLITUDE = 1.5
"""The width of the uniform perturbation, in multiples of eps."""

EXACT_OPS = """
abs adaptive_max_pool2d adaptive_max_pool3d alias alias_copy amax amin aminmax arange argmax argmin as_strided
as_strided_ as_strided_copy as_strided_scatter bernoulli bernoulli_ bitwise_and bitwise_not bitwise_or cat ceil
ceil_ channel_shuffle clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clone complex conj_physical
conj_physical_ constant_pad_nd contiguous copysign copysign_ cummax cummin detach device_put diag_embed
diagonal_backward diagonal_copy diagonal_scatter embedding empty empty_like empty_permuted empty_strided eq
expand_copy eye fill fill_ fix fix_ flip floor floor_ floor_divide floor_divide_ fmax fmin fmod fmod_ frac
fractional_max_pool2d fractional_max_pool3d frexp full full_like gather ge gt hardshrink hardshrink_backward
hardtanh hardtanh_ hardtanh_backward heaviside heaviside_ histc im2col index index_copy index_copy_ index_fill
index_fill_ index_put index_put_ index_select isfinite isinf isnan kthvalue le lift lift_fresh lift_fresh_copy
logical_and logical_not logical_or lt masked_fill masked_fill_ masked_scatter masked_scatter_
masked_scatter_backward masked_select max max_pool1d max_pool2d_with_indices max_pool3d_with_indices
max_unpool2d max_unpool3d maximum median min minimum mode multinomial nan_to_num nan_to_num_ nanmedian
narrow_copy native_channel_shuffle native_dropout ne neg neg_ new_empty new_empty_strided new_full new_ones
new_zeros nextafter nextafter_ nonzero normal_ ones ones_like permute_copy pixel_shuffle pixel_unshuffle put
put_ rand rand_like randint randint_like randn randn_like random_ randperm reflection_pad1d reflection_pad2d
reflection_pad3d relu relu_ repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d
resize_ resize_as_ roll rot90 round round_ scalar_tensor scatter scatter_ select_backward select_copy
select_scatter set_ sgn sign sign_ slice_backward slice_copy slice_scatter sort split_copy split_with_sizes_copy
squeeze_copy stack t_copy take threshold threshold_ threshold_backward topk transpose_copy tril tril_ triu triu_
trunc trunc_ unbind_copy unfold_copy uniform_ unique_consecutive unique_dim unsqueeze_copy upsample_nearest1d
upsample_nearest2d upsample_nearest3d view_as_complex_copy view_as_real_copy view_copy where where_ zero zero_
zeros zeros_like _cummax_helper _cummin_helper _foreach_abs _foreach_abs_ _foreach_ceil _foreach_ceil_
_foreach_clamp_max _foreach_clamp_max_ _foreach_clamp_min _foreach_clamp_min_ _foreach_floor _foreach_floor_
_foreach_frac _foreach_frac_ _foreach_maximum _foreach_maximum_ _foreach_minimum _foreach_minimum_ _foreach_neg
_foreach_neg_ _foreach_round _foreach_round_ _foreach_sign _foreach_sign_ _foreach_trunc _foreach_trunc_
_foreach_zero _foreach_zero_ _index_put_impl_ _local_scalar_dense _low_memory_max_pool_with_offsets
_pack_padded_sequence _pin_memory _reshape_copy _unique _unique2 _unsafe_index _unsafe_index_put _unsafe_view
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
"""
EXACT = frozenset(EXACT_OPS.split())
"""Ops whose results are copies, choices or signs of their inputs, or whole numbers.

An op that assigns to elements may add to them instead. Then it is not exact (see `is_exact`).
"""

CASTS = frozenset(("_to_copy", "copy_", "copy", "_foreach_copy_", "set_data", "convert_element_type"))
"""Ops that copy. A copy rounds if its dtype has fewer digits than the source's, and too few for its values."""

SHARES = "hardsigmoid igamma igammac sigmoid softmax safe_softmax masked_softmax special_i0e special_ndtr"
RANGES = {
    **dict.fromkeys(SHARES.split(), (0.0, 1.0)),
    **dict.fromkeys(("cos", "erf", "sin", "sinc", "tanh"), (-1.0, 1.0)),
    **dict.fromkeys(("cosh", "i0"), (1.0, math.inf)),
    "erfc": (0.0, 2.0),
}
"""The bounds of an op's real results, by the op's name without `_foreach` and without underscores at either end."""

PROBABILITIES = {"bernoulli": (0,), "bernoulli_": (1,), "binary_cross_entropy": (0, 1)}
"""The indices of arguments that an op refuses unless they lie between 0 and 1.

These arguments are clamped: the perturbation of an op such as `0.9 * labels + 0.1` may move its result beyond 1."""

ASSIGNING = frozenset(("index_put", "index_put_", "_unsafe_index_put", "_index_put_impl_", "put", "put_"))
ACCUMULATE = 3
"""Ops that assign to elements, and the index of the argument `accumulate` that makes them add to the elements."""

POOL = 1 << 21
"""The number of random numbers from which perturbations are taken."""


def is_exact(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Return whether an op has exact results for these arguments in every kernel."""
    if name in ("div", "div_", "divide", "divide_"):
        return keywords.get("rounding_mode") is not None
    adds = keywords.get("accumulate", name in ASSIGNING and len(arguments) > ACCUMULATE and arguments[ACCUMULATE])
    return name in EXACT and not adds and keywords.get("reduce") is None


class RandomRounding:
    """A member of the ensemble, determined by its seed. `strength` multiplies the perturbation."""

    def __init__(self, seed: int, strength: float = 1.0) -> None:
        self._places = random.Random(seed)
        self._amplitude = AMPLITUDE * strength

    def held(self, recorded: torch.dtype) -> torch.dtype:
        return recorded

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        call, name = computation.call, computation.call.name
        written = computation.written(arguments, keywords)
        untouched = {id(tensor) for tensor in written}
        # Read the precision of a copy's source before the copy runs, since the copy may overwrite its source.
        copies = name in CASTS
        values: Iterable[Any] = leaves([*arguments, *keywords.values()]) if copies else ()
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        read = max((_eps(value) for value in tensors if id(value) not in untouched), default=0.0)
        exact = is_exact(name, arguments, keywords)

        def perturbed(value: Any) -> Any:
            return value if id(value) in untouched or not _eps(value) else self._perturbed(value)

        if call.draw is None and not exact and sums(name):
            arguments = mapped(perturbed, arguments)
            keywords = {key: mapped(perturbed, value) for key, value in keywords.items()}
        if refused := PROBABILITIES.get(name):
            arguments = tuple(
                value.clamp(0.0, 1.0) if place in refused and isinstance(value, torch.Tensor) else value
                for place, value in enumerate(arguments)
            )
        outputs = executed(computation, arguments, keywords)
        if call.draw is not None or exact:
            return outputs
        fresh = [output for output, is_fresh in zip(outputs, call.fresh, strict=False) if is_fresh]
        results = [*written, *(output for output in fresh if isinstance(output, torch.Tensor))]
        if copies:
            # Perturb only results that have lost digits: bfloat16 holds 1.5 exactly, but not 1.001. The sources are the
            # last arguments.
            sources = tensors[-len(results) :] if results else []
            results = [
                result
                for result, source in zip(results, sources, strict=True)
                if _eps(result) > read and _has_lost(result, source)
            ]
        bounds = RANGES.get(name.removeprefix("_foreach").strip("_"))
        for result in results:
            self._perturb(result)
            if bounds is not None and result.is_floating_point():
                result.clamp_(*bounds)
        return outputs

    def _perturbed(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor of numbers with its values rounded at random."""
        if not _is_dense(tensor):
            copy = tensor.clone()
            self._perturb(copy)
            return copy
        copy = torch.empty_like(tensor)  # in the same layout
        self._round_at_random(tensor, copy)
        return copy

    def _perturb(self, tensor: torch.Tensor) -> None:
        """Round the tensor's values at random, in place."""
        if _eps(tensor):
            self._round_at_random(tensor, tensor)

    def _round_at_random(self, tensor: torch.Tensor, rounded: torch.Tensor) -> None:
        """Write the randomly rounded values of a tensor of numbers to `rounded`, which has its layout."""
        scale = self._amplitude * _eps(tensor)
        if tensor.is_complex():
            tensor, rounded = torch.view_as_real(tensor), torch.view_as_real(rounded)
        count = tensor.numel()
        if not _is_dense(tensor):
            _round(tensor, self._numbers(count, tensor.device).view(tensor.size()), scale, rounded)
        elif count <= POOL // 2:
            start = self._places.randrange(POOL - count + 1)
            numbers = _pool(tensor.device).as_strided(tensor.size(), tensor.stride(), start)
            _round(tensor, numbers, scale, rounded)
        else:  # in the order of the memory, in pieces that stay in the processor's cache
            flat, flat_rounded = (value.as_strided((count,), (1,)) for value in (tensor, rounded))
            for start in range(0, count, POOL // 2):
                piece = flat[start : start + POOL // 2]
                numbers = self._numbers(piece.numel(), tensor.device)
                _round(piece, numbers, scale, flat_rounded[start : start + POOL // 2])

    def _numbers(self, count: int, device: torch.device) -> torch.Tensor:
        """Return numbers from -1/2 to 1/2."""
        pool = _pool(device)
        if count <= POOL // 2:
            start = self._places.randrange(POOL - count + 1)
            return pool[start : start + count]
        parts = [POOL // 2] * (count // (POOL // 2)) + [count % (POOL // 2)]
        return torch.cat([self._numbers(part, device) for part in parts])


def _round(values: torch.Tensor, numbers: torch.Tensor, scale: float, rounded: torch.Tensor) -> None:
    """Write values * (1 + scale * numbers) to `rounded`, which may be `values`."""
    # Add the change instead of multiplying: a factor near 1 would itself be rounded, differently above and below 1.
    if values.dtype == numbers.dtype and values.device.type == "cpu" and math.isfinite(values.sum().item()):
        torch.addcmul(values, values, numbers, value=scale, out=rounded)  # all are finite, so none becomes NaN
    else:
        change = numbers * values
        change.nan_to_num_(0.0, 0.0, 0.0)
        torch.add(values, change, alpha=scale, out=rounded)


def free_random_numbers() -> None:
    """Free the memory of the random numbers. The next perturbation on a device draws the same ones again."""
    _pool.cache_clear()


@functools.cache
def _pool(device: torch.device) -> torch.Tensor:
    """Return uniform numbers from -1/2 to 1/2. Each perturbation takes a slice of them that begins at a random index.

    Drawing each number anew would take longer than the step (4 ns per number, seven times the replay of a transformer).
    """
    generator = torch.Generator(device).manual_seed(POOL)
    return torch.rand(POOL, generator=generator, device=device).sub_(0.5)


def _eps(value: Any) -> float:
    """Return the distance from 1 to the next number in a tensor's dtype, 0 for a value without digits to round."""
    return _eps_of(value.dtype) if isinstance(value, torch.Tensor) and value.numel() else 0.0


@functools.cache
def _eps_of(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps) if dtype.is_floating_point or dtype.is_complex else 0.0


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor fill a stretch of memory, in any order of its dimensions."""
    if tensor.is_contiguous():
        return True
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size > 1:
            if stride != filled:
                return False
            filled *= size
    return True


def _has_lost(result: torch.Tensor, source: torch.Tensor) -> bool:
    """Return whether a copy holds different numbers from its source."""
    wide = torch.complex128 if result.is_complex() or source.is_complex() else torch.float64
    return not bool((result.to(wide) == source.to(wide)).all())


def has_digits(tensor: torch.Tensor) -> bool:
    """Return whether the tensor holds numbers that rounding can move."""
    return tensor.is_floating_point() or tensor.is_complex()
