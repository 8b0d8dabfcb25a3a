"""Ops that return positions of elements. If elements are equal, correct kernels may return different positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...tape.replaying.replay import call_arguments, executions, is_same
from ...tape.storages import Storages
from ...tape.tape import Tape
from ...torch_private.operators import schema_of

SELECTING = frozenset(("kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk"))


def names_other_elements(tape: Tape, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    """Check whether the two sides' results are positions of elements with different values.

    The answer is False unless the only op on the tape selects along a dimension.
    """
    computing = executions(tape)
    if len(computing) != 1 or computing[0].call.name not in SELECTING:
        return False
    arguments, keywords = call_arguments(computing[0].call, Storages(tape, lambda dtype: dtype).tensor)
    schema = schema_of(computing[0].operation).arguments
    names = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    names |= dict(zip((argument.name for argument in schema), arguments, strict=False)) | keywords
    source, dim = names["self"], names.get("dim")
    if dim is None or not source.dim():
        return False
    for pair in zip(a, b, strict=True):
        if any(result.dtype != torch.int64 for result in pair):
            continue
        places = [result if result.dim() == source.dim() else result.unsqueeze(dim) for result in pair]
        if any(bool(((positions < 0) | (positions >= source.shape[dim])).any()) for positions in places):
            return True
        chosen = [source.gather(dim, positions) for positions in places]
        if names.get("sorted") is False:  # topk may return its elements in any order
            chosen = [elements.sort(dim).values for elements in chosen]
        if not is_same(chosen[0], chosen[1]):
            return True
    return False
