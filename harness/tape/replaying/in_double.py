"""The fp64 referee: tapes executed in double, with the recorded random numbers.

Every floating-point tensor becomes a double, and so does every floating-point dtype among the arguments. Casts to lower
precision therefore do nothing: a step under autocast is computed without the rounding of its casts. An op without a
kernel for double is executed in the recorded precision, and listed.

The referee runs in a clean process in which no kernel is replaced (`recorder/referee_process.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..files.earlier_values import FEWEST_BYTES
from ..files.tensor_file import write_tensors
from ..large_values import LargeValues
from ..tape import Tape, View, in_words, mapped, views_in
from .replay import Computation, Replay, executed

SCHEMA = 1

EXACT_DTYPES = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}

DRAWN_ONLY = ("bernoulli", "multinomial")
"""Random ops that read numbers and draw discrete values. The recorded draws are used; nothing is drawn again."""


@contextmanager
def double_by_default() -> Iterator[None]:
    """Let ops convert integers and Python numbers to double within the context."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Exact:
    """Double arithmetic; `not_exact` lists the ops that could not be executed in double."""

    def __init__(self) -> None:
        self.not_exact: dict[str, None] = {}

    def held(self, recorded: torch.dtype) -> torch.dtype:
        return EXACT_DTYPES.get(recorded, recorded)

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        call = computation.call
        if call.draw is not None:
            # Use the recorded draws in place of the op's results.
            if call.name == "native_dropout":
                # Dropout with the recorded mask: x * mask / (1 - p)
                value, share, training = arguments
                mask = call.draw.drawn[1].to(value.device)
                kept = 1.0 - share if training is not False else 1.0
                return [value * mask / kept if kept else torch.zeros_like(value), mask]
            # A draw is as inexact as the numbers that the op read, unless these only decided a discrete choice.
            chooses = call.name.strip("_") in DRAWN_ONLY or call.name.endswith("_like")
            targets = {id(view) for view in computation.written_views()}
            read = (view for view in views_in(call) if id(view) not in targets)
            if not chooses and any(view.dtype.is_floating_point for view in read):
                self.not_exact[call.op] = None
            # The draws of the outputs come first, then those of the arguments that the op wrote to.
            drawn = iter([value.to(self.held(value.dtype)) for value in call.draw.drawn])
            results = [next(drawn) if isinstance(output, View) else output for output in call.outputs]
            for tensor, value in zip(computation.written(arguments, keywords), drawn, strict=True):
                tensor.copy_(value)
            return results
        if call.name == "_amp_foreach_non_finite_check_and_unscale_":
            # The op with which a gradient scaler unscales gradients has no kernel for double. It is short enough to
            # compute here: multiply each gradient by `inverse`, and set `found_inf` if an element is not finite.
            gradients, found_inf, inverse = arguments
            for gradient in gradients:
                if not bool(torch.isfinite(gradient).all()):
                    found_inf.fill_(1.0)
                gradient.mul_(inverse)
            return []

        def widened(value: Any) -> Any:
            return self.held(value) if isinstance(value, torch.dtype) else value

        arguments = mapped(widened, arguments)
        keywords = {name: mapped(widened, value) for name, value in keywords.items()}
        try:
            return executed(computation, arguments, keywords)
        except (RuntimeError, NotImplementedError, TypeError):
            return self._otherwise(computation, arguments, keywords)

    def _otherwise(
        self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        """Execute a failed op again with contiguous inputs, since the strides may have caused the failure.

        If it fails again, execute it in the recorded precision.
        """
        written = {id(tensor) for tensor in computation.written(arguments, keywords)}

        def contiguous(value: Any) -> Any:
            is_read = isinstance(value, torch.Tensor) and id(value) not in written
            return value.contiguous() if is_read else value

        try:
            return executed(
                computation,
                mapped(contiguous, arguments),
                {name: mapped(contiguous, value) for name, value in keywords.items()},
            )
        except (RuntimeError, NotImplementedError, TypeError):
            # Execute the op in its recorded precision, on rounded copies of its inputs.
            narrow: dict[int, torch.Tensor] = {}
            recorded = iter(views_in(computation.call))

            def rounded(value: Any) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                narrow[id(value)] = value.to(next(recorded).dtype)
                return narrow[id(value)]

            lower = mapped(rounded, arguments)
            lower_keywords = {name: mapped(rounded, value) for name, value in keywords.items()}
            lower = _recorded_dtypes(lower, computation.call.arguments)
            lower_keywords = {
                name: _recorded_dtypes(value, computation.call.keywords[name]) for name, value in lower_keywords.items()
            }
            outputs = executed(computation, lower, lower_keywords)
            self.not_exact[computation.call.op] = None
            for tensor in computation.written(arguments, keywords):
                tensor.copy_(narrow[id(tensor)])
            return outputs


Keep = Callable[[str, torch.Tensor], torch.Tensor]
"""A function that returns what is kept of a value of this name."""


def exact_values(
    tape: Tape, kept: Keep = lambda name, value: value.clone()
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """Return what is `kept` of the watched values in double arithmetic, and the ops that were not executed in double.

    The values are on their recorded devices. Raises NotReplayable, and any error that an op raises on values that
    differ from the recorded ones.
    """
    arithmetic, values = Exact(), dict[str, torch.Tensor]()

    def keep(name: str, value: torch.Tensor) -> None:
        values[name] = kept(name, value)

    with double_by_default():
        Replay(tape).show(arithmetic, keep)
    return {watched.name: values[watched.name] for watched in tape.watched}, tuple(arithmetic.not_exact)


def _recorded_dtypes(value: Any, recorded: Any) -> Any:
    """Return a value with each dtype in it replaced with the recorded one."""
    if isinstance(value, (list, tuple)):
        return tuple(_recorded_dtypes(item, recorded_item) for item, recorded_item in zip(value, recorded, strict=True))
    return recorded if isinstance(recorded, torch.dtype) else value


NARROW = (torch.float32, torch.float16, torch.bfloat16)
"""The recorded dtypes whose values are computed in double."""

OUT_OF_MEMORY = "the device has too little memory for it"


def write_exact(tape: Tape, path: Path) -> str | None:
    """Replay a tape in double and write its values, or the reason why the replay failed.

    Of a value E that was recorded as A, unless it is small, the file has E - A in float32, which takes half of the
    room. The fact `apart` names such values. E = A + (E - A) is then exact to 2**-24 of the distance between the two.

    Returns this reason, None if the replay succeeded.
    """
    facts: dict[str, Any] = {"schema": SCHEMA, "step": tape.step, "calls": len(tape.calls), "reason": None}
    values: dict[str, torch.Tensor] = {}
    not_exact: tuple[str, ...] = ()
    recorded, apart = tape.expected(), dict[str, bool]()
    large = LargeValues(path.parent)

    def kept(name: str, value: torch.Tensor) -> torch.Tensor:
        distance = _distance(value, recorded[name])
        apart[name] = distance is not None
        return large.copy(value if distance is None else distance)

    try:
        # Values are written from the CPU, and a device may lack memory for all of them.
        values, not_exact = exact_values(tape, kept)
    except torch.OutOfMemoryError:
        facts["reason"] = OUT_OF_MEMORY
    except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not the recorded ones
        facts["reason"] = f"the step does not replay in double: {in_words(error)}"
    named = [name for name in values if apart[name]]
    write_tensors(path, values, facts | {"not_exact": list(not_exact)} | ({"apart": named} if named else {}))
    reason: str | None = facts["reason"]
    return reason


def _distance(value: torch.Tensor, recorded: torch.Tensor) -> torch.Tensor | None:
    """Return the distance of a value in double from the recorded one, in float32; None if the value itself has to
    be kept."""
    is_alike = recorded.dtype in NARROW and value.dtype == torch.float64 and value.shape == recorded.shape
    if not is_alike or value.nbytes < FEWEST_BYTES:
        return None
    distance = (value - recorded.to(value.device).double()).float()
    return distance if bool(distance.isfinite().all()) else None
