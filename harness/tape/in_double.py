"""The fp64 referee's arithmetic: a tape executed in double, with everything that was drawn as it was drawn.

Every floating-point tensor is a double, every dtype among the arguments too, so casts to lower precision do
nothing: what autocast would have computed without rounding. An op that has no double kernel is executed in
the recorded precision, and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .replay import Computation, Replay, executed
from .tape import Tape, View, mapped, views_in

EXACT_DTYPES = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}

DRAWN_ONLY = ("bernoulli", "multinomial")
"""Random ops that read numbers and draw discrete values: what they drew is taken, not drawn again."""


def _unscale(gradients: Sequence[torch.Tensor], found: torch.Tensor, inverse: torch.Tensor) -> list[Any]:
    """What a gradient scaler does before the optimizer's step: g * inverse, and whether any g is not
    finite."""
    for gradient in gradients:
        if not bool(torch.isfinite(gradient).all()):
            found.fill_(1.0)
        gradient.mul_(inverse)
    return []


IN_DOUBLE = {"_amp_foreach_non_finite_check_and_unscale_": _unscale}
"""Ops without a double kernel that are as short in torch's own."""


class Exact:
    """Double arithmetic; `not_exact` are the ops that could not be executed in it."""

    def __init__(self) -> None:
        self.not_exact: dict[str, None] = {}

    def held(self, recorded: torch.dtype) -> torch.dtype:
        return EXACT_DTYPES.get(recorded, recorded)

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        if one.call.draw is not None:
            # Take what was drawn in place of the op's results
            if one.call.name == "native_dropout":
                # Dropout with the recorded mask: x * mask / (1 - p)
                value, share, training = arguments
                mask = one.call.draw.drawn[1]
                kept = 1.0 - share if training is not False else 1.0
                return [value * mask / kept if kept else torch.zeros_like(value), mask]
            if _reads_numbers(one):
                self.not_exact[one.call.op] = None
            drawn = [value.to(self.held(value.dtype)) for value in one.call.draw.drawn]
            written = one.written(arguments, keywords)
            given = iter(drawn)
            results = [next(given) if isinstance(output, View) else output for output in one.call.outputs]
            for tensor, value in zip(written, given, strict=True):
                tensor.copy_(value)
            return results
        if one.call.name in IN_DOUBLE:
            return IN_DOUBLE[one.call.name](*arguments)
        arguments = mapped(self._widened, arguments)
        keywords = {name: mapped(self._widened, value) for name, value in keywords.items()}
        try:
            return executed(one, arguments, keywords)
        except (RuntimeError, NotImplementedError, TypeError):
            return self._otherwise(one, arguments, keywords)

    def _widened(self, value: Any) -> Any:
        return self.held(value) if isinstance(value, torch.dtype) else value

    def _otherwise(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Once more with contiguous inputs, for other strides may be what it failed by; else as recorded."""
        written = {id(tensor) for tensor in one.written(arguments, keywords)}

        def contiguous(value: Any) -> Any:
            is_read = isinstance(value, torch.Tensor) and id(value) not in written
            return value.contiguous() if is_read else value

        try:
            return executed(
                one,
                mapped(contiguous, arguments),
                {name: mapped(contiguous, value) for name, value in keywords.items()},
            )
        except (RuntimeError, NotImplementedError, TypeError):
            # Execute the op in the precision that it was recorded in, on rounded copies of its inputs
            narrow: dict[int, torch.Tensor] = {}
            recorded = iter(views_in(one.call))

            def rounded(value: Any) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                narrow[id(value)] = value.to(next(recorded).dtype)
                return narrow[id(value)]

            lower = mapped(rounded, arguments)
            lower_keywords = {name: mapped(rounded, value) for name, value in keywords.items()}
            lower = _recorded_dtypes(lower, one.call.arguments)
            lower_keywords = {
                name: _recorded_dtypes(value, one.call.keywords[name]) for name, value in lower_keywords.items()
            }
            outputs = executed(one, lower, lower_keywords)
            self.not_exact[one.call.op] = None
            for tensor in one.written(arguments, keywords):
                tensor.copy_(narrow[id(tensor)])
            return outputs


def exact_values(tape: Tape) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The watched values as double arithmetic gives them, and the ops that were not executed in it.

    Raises NotReplayable, and whatever an op raises on values that are not the recorded ones.
    """
    arithmetic = Exact()
    with _default_dtype(torch.float64):
        values = Replay(tape).run(arithmetic)
    return values, tuple(arithmetic.not_exact)


def _reads_numbers(one: Computation) -> bool:
    """Whether what the op drew depends on floating-point values that it read, beyond a discrete choice."""
    if one.call.name.strip("_") in DRAWN_ONLY or one.call.name.endswith("_like"):
        return False
    written = {id(view) for view in one.written_views()}
    return any(view.dtype.is_floating_point and id(view) not in written for view in views_in(one.call))


def _recorded_dtypes(value: Any, recorded: Any) -> Any:
    """The value with the dtypes in it as they were recorded."""
    if isinstance(value, (list, tuple)):
        return tuple(_recorded_dtypes(one, other) for one, other in zip(value, recorded, strict=True))
    return recorded if isinstance(recorded, torch.dtype) else value


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """What an op makes of integers and numbers has this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
