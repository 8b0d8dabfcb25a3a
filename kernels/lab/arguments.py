"""Arguments for any op from any input set: from the tables, or from what the op's schema says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from numdrift.harness.errors import UsageError
from numdrift.harness.torch_private.operators import find_overload, find_packet, is_random, schema_of

from .calls import LabCall
from .elementwise import DOMAINS, ELEMENTWISE
from .inputs import InputPart, Source, source
from .recipes import RECIPES, VARIANTS


@dataclass(frozen=True, slots=True)
class Case:
    """Calls that are measured together: those of one input set, and of one variant where the op has several."""

    inputs: str
    variant: str
    calls: tuple[LabCall, ...]

    @property
    def label(self) -> str:
        return f"{self.inputs} {self.variant}".strip()


def generated(op: str, inputs: Sequence[str], dtype: torch.dtype, samples: int, seed: int) -> list[Case]:
    """The cases of an op, set by set; equal arguments give equal bits.

    samples: how many elements an op that works element by element gets; others get about as many.
    Raises KernelNotFound for an unknown op, UsageError for one whose arguments cannot be guessed.
    """
    overloads(op)
    cases = []
    for name in inputs:
        for variant in _variants(op):
            made = tuple(_calls(op, source(name, op, dtype, samples, seed), variant))
            cases.append(Case(name, variant, made))
    if cases and (why := refusal(op, cases[0].calls[0])):
        raise no_arguments(op, why)
    return cases


def _variants(op: str) -> Sequence[str]:
    if op in ELEMENTWISE:
        return tuple(ELEMENTWISE[op].variants)
    return VARIANTS.get(op, ("",))


def _calls(op: str, source: Source, variant: str) -> Iterator[LabCall]:
    if op in ELEMENTWISE:
        yield from ELEMENTWISE[op].calls(source, variant)
    elif op in RECIPES:
        yield from RECIPES[op](source, variant)
    elif "." not in op and any(name.startswith(f"{op}.") for name in ELEMENTWISE):
        for name in ELEMENTWISE:
            if name.startswith(f"{op}."):
                yield from ELEMENTWISE[name].calls(source, variant)
    else:
        yield from _guessed(op, source)


def _guessed(op: str, source: Source) -> Iterator[LabCall]:
    """Calls from the schema: tensors of one shape, and plain numbers where it has no default."""
    for overload in overloads(op):
        required = [one for one in schema_of(overload).arguments if not one.has_default_value()]
        if not required or any(one.kwarg_only or _placeholder(one) is None for one in required):
            continue
        part = DOMAINS.get(op.partition(".")[0], InputPart.REAL)
        for shape in ((source.samples | 1,), (5, 9)):
            args = [
                source.elements(*shape, part=part) if placeholder is torch.Tensor else placeholder
                for placeholder in map(_placeholder, required)
            ]
            call = LabCall(tuple(args), {})
            if len(shape) == 1 or not refusal(op, call):
                yield call
        return
    raise no_arguments(op, "its schema asks for more than tensors and numbers")


def _placeholder(argument: Any) -> Any:
    """`torch.Tensor` for a tensor, a value for a number or dimension, None for what cannot be guessed."""
    kind = str(argument.type)
    if kind == "Tensor":
        return torch.Tensor
    if argument.name == "dim":
        return {"int": -1, "List[int]": [-1], "Optional[List[int]]": [-1]}.get(kind)
    return 0.5 if kind in ("number", "float") else None


def overloads(op: str) -> list[Any]:
    """The overloads of an op that return what they compute, or the one that is named. Raises KernelNotFound."""
    name, _, wanted = op.partition(".")
    if wanted:
        return [find_overload(op)]
    packet = find_packet(name)
    return [getattr(packet, one) for one in packet.overloads() if not one.endswith("out")]


def refusal(op: str, call: LabCall) -> str:
    """Why the op does not take a call, empty when it does."""
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
        return UsageError(f"op {op} draws random numbers: nothing can be its reference")
    return UsageError(f"no arguments can be made for op {op}: {why}; {how_to_record(op)}")


def how_to_record(op: str) -> str:
    """The remedy where arguments are missing, as the end of an error message."""
    return f"record some with numdrift run SCRIPT --mode cpu --trace-kernel {op}, then give --captured RUN"
