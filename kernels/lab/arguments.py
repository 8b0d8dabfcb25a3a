"""Arguments for any op, drawn from an input set according to a table or to the op's schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from numdrift.harness.errors import UsageError
from numdrift.harness.torch_private.operators import find_overload, find_packet, is_random, schema_of

from .calls import LabCall
from .inputs import InputPart, Source, source
from .recipes import RECIPES, VARIANTS


@dataclass(frozen=True, slots=True)
class Case:
    """Calls that are measured together: those of one input set, and of one variant if the op has several."""

    inputs: str
    variant: str
    calls: tuple[LabCall, ...]

    @property
    def label(self) -> str:
        return f"{self.inputs} {self.variant}".strip()


def generated(
    op: str, inputs: Sequence[str], dtype: torch.dtype, samples: int, seed: int, device: str = "cpu"
) -> list[Case]:
    """Return the cases of an op, set by set. The same arguments always give the same bits.

    samples: the number of elements for an elementwise op, and the approximate number for other ops. The tensors are on
    the CPU; those that a forward saves for its backward are computed on the device and then copied to the CPU. Raises
    KernelNotFound for an unknown op, and UsageError for an op whose arguments cannot be guessed.
    """
    overloads(op)
    variants = tuple(ELEMENTWISE[op].variants) if op in ELEMENTWISE else VARIANTS.get(op, ("",))
    # if the overloads of an op are listed separately, as for `lerp`, all of them are used
    listed = [name for name in ELEMENTWISE if name == op or ("." not in op and name.startswith(f"{op}."))]
    cases = []
    for name in inputs:
        for variant in variants:
            drawn = source(name, op, dtype, samples, seed, device)
            if op in RECIPES:
                made = tuple(RECIPES[op](drawn, variant))
            elif listed:
                made = tuple(
                    call for overload_name in listed for call in ELEMENTWISE[overload_name].calls(drawn, variant)
                )
            else:
                made = tuple(_guessed(op, drawn))
            cases.append(Case(name, variant, made))
    if cases:
        call = cases[0].calls[0]
        # If the op rejects its arguments only on the device, it has no kernel for the device: the measurement reports
        # this failure.
        if (why := refusal(op, call.on(device))) and refusal(op, call):
            raise no_arguments(op, why)
    return cases


def _guessed(op: str, source: Source) -> Iterator[LabCall]:
    """Yield calls guessed from the schema: arguments without a default are tensors of one shape, or plain numbers."""

    def placeholder(argument: Any) -> Any:
        """Return `torch.Tensor` for a tensor, a value for a number or dimension, and None for any other argument."""
        kind = str(argument.type)
        if kind == "Tensor":
            return torch.Tensor
        if argument.name == "dim":
            return {"int": -1, "List[int]": [-1], "Optional[List[int]]": [-1]}.get(kind)
        return 0.5 if kind in ("number", "float") else None

    for overload in overloads(op):
        required = [argument for argument in schema_of(overload).arguments if not argument.has_default_value()]
        if not required or any(argument.kwarg_only or placeholder(argument) is None for argument in required):
            continue
        part = DOMAINS.get(op.partition(".")[0], InputPart.REAL)
        for shape in ((source.samples | 1,), (5, 9)):
            args = [
                source.elements(*shape, part=part) if kind is torch.Tensor else kind
                for kind in map(placeholder, required)
            ]
            call = LabCall(tuple(args), {})
            # some ops accept only vectors; the caller checks whether the op accepts vectors at all
            if len(shape) == 1 or not refusal(op, call):
                yield call
        return
    raise no_arguments(op, "its schema requires arguments that are neither tensors nor numbers")


def overloads(op: str) -> list[Any]:
    """Return the overload that `op` names, or all overloads except those with `out`. Raises KernelNotFound."""
    name, _, wanted = op.partition(".")
    if wanted:
        return [find_overload(op)]
    packet = find_packet(name)
    return [getattr(packet, overload_name) for overload_name in packet.overloads() if not overload_name.endswith("out")]


def refusal(op: str, call: LabCall) -> str:
    """Return the reason why the op rejects a call, or "" if the op accepts the call."""
    try:
        overload = find_overload(op, call.args, call.kwargs)
        with torch.random.fork_rng(devices=[]):
            own = call.copy()
            overload(*own.args, **own.kwargs)
    except (RuntimeError, TypeError, IndexError) as error:
        return str(error).strip().splitlines()[0]
    return ""


def no_arguments(op: str, why: str) -> UsageError:
    if any(map(is_random, overloads(op))):
        return UsageError(f"op {op} draws random numbers, so no reference exists for it")
    return UsageError(f"cannot generate arguments for op {op}: {why}; {how_to_record(op)}")


def how_to_record(op: str) -> str:
    """Return the remedy for missing arguments, as the end of an error message."""
    return f"record some with numdrift run SCRIPT --mode cpu --trace-kernel {op}, then pass --captured RUN"


# The table of the arguments of elementwise ops.

REAL, POSITIVE, TANH = InputPart.REAL, InputPart.POSITIVE, InputPart.TANH
SIGMOID, UNIT = InputPart.SIGMOID, InputPart.UNIT

Extras = tuple[tuple[tuple[Any, ...], Mapping[str, Any]], ...]
"""Pairs of positional arguments and keywords."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """The arguments of one elementwise op.

    parts: the roles of the tensors, which are the first arguments
    each: pairs of further positional arguments and keywords, which are measured together
    variants: keywords that are measured separately
    listed: whether the op takes lists of tensors
    """

    parts: tuple[InputPart, ...]
    each: Extras = (((), {}),)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    listed: bool = False

    def calls(self, source: Source, variant: str) -> list[LabCall]:
        """Return calls on a large tensor with an odd number of elements, on a transposed tensor and on a tiny tensor.
        An op that takes lists is called on lists of all three."""
        made = []
        for positional, keywords in self.each:
            shapes: list[tuple[int, ...]] = [(source.samples // len(self.each) | 1,), (9, 5), (3,)]
            keywords = {**keywords, **self.variants[variant]}
            if self.listed:
                lists = [[_drawn(source, part, *shape) for shape in shapes] for part in self.parts]
                made.append(LabCall((*lists, *positional), keywords))
                continue
            for shape in shapes:
                tensors = [_drawn(source, part, *shape) for part in self.parts]
                made.append(LabCall((*tensors, *positional), keywords))
        return made


def _drawn(source: Source, part: InputPart, *shape: int) -> torch.Tensor:
    """Return a tensor of the shape; a matrix is a transposed view."""
    numbers = source.elements(*reversed(shape), part=part)
    return numbers.t() if len(shape) == 2 else numbers


_GELU = {"approximate=none": {}, "approximate=tanh": {"approximate": "tanh"}}
_VALUES: Extras = (((), {}), ((), {"value": -0.3}))
_LIST_VALUES: Extras = (((), {}), ((-0.3,), {}))

ELEMENTWISE: dict[str, Elementwise] = {
    "tanh_backward": Elementwise((REAL, TANH)),
    "sigmoid_backward": Elementwise((REAL, SIGMOID)),
    "tanh": Elementwise((REAL,)),
    "sigmoid": Elementwise((REAL,)),
    "silu": Elementwise((REAL,)),
    "silu_backward": Elementwise((REAL, REAL)),
    "gelu": Elementwise((REAL,), variants=_GELU),
    "gelu_backward": Elementwise((REAL, REAL), variants=_GELU),
    "addcmul": Elementwise((REAL, REAL, REAL), each=_VALUES),
    "addcdiv": Elementwise((REAL, REAL, REAL), each=_VALUES),
    "lerp.Tensor": Elementwise((REAL, REAL, SIGMOID)),
    "lerp.Scalar": Elementwise((REAL, REAL), each=(((0.1,), {}), ((0.7,), {}))),
    "_foreach_addcmul": Elementwise((REAL, REAL, REAL), each=_LIST_VALUES, listed=True),
    "_foreach_addcdiv": Elementwise((REAL, REAL, POSITIVE), each=_LIST_VALUES, listed=True),
    "_foreach_lerp": Elementwise((REAL, REAL), each=(((0.1,), {}), ((0.7,), {})), listed=True),
    "_foreach_mul": Elementwise((REAL, REAL), listed=True),
    "_foreach_add": Elementwise((REAL, REAL), each=(((), {}), ((), {"alpha": -0.3})), listed=True),
    "_foreach_div": Elementwise((REAL, REAL), listed=True),
    "_foreach_sqrt": Elementwise((POSITIVE,), listed=True),
}

DOMAINS: dict[str, InputPart] = dict.fromkeys(
    ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "lgamma", "digamma", "special_xlog1py"), POSITIVE
) | {
    "asin": UNIT,
    "acos": UNIT,
    "atanh": UNIT,
    "special_erfinv": UNIT,
    "erfinv": UNIT,
    "logit": SIGMOID,
    "acosh": InputPart.ABOVE_ONE,
}
"""The domains of functions of one number; functions that are not listed count as defined everywhere."""
