"""Ops that say where elements lie: of equal ones any may be named, so two correct kernels may give other places."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..tape.replay import executions, given, is_same
from ..tape.storages import Storages
from ..tape.tape import Tape
from ..torch_private.operators import schema_of

SELECTING = frozenset(("kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk"))


def names_other_elements(tape: Tape, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    """Whether the places that either side's kernel gives in these results are those of other elements, for a tape that
    is one op which selects along a dimension."""
    computing = executions(tape)
    if len(computing) != 1 or computing[0].call.name not in SELECTING:
        return False
    arguments, keywords = given(computing[0].call, Storages(tape, lambda dtype: dtype).tensor)
    schema = schema_of(computing[0].operation).arguments
    names = {one.name: one.default_value for one in schema if one.has_default_value()}
    names |= dict(zip((one.name for one in schema), arguments, strict=False)) | keywords
    source, dim = names["self"], names.get("dim")
    if dim is None or not source.dim():
        return False
    for pair in zip(a, b, strict=True):
        if any(one.dtype != torch.int64 for one in pair):
            continue
        places = [one if one.dim() == source.dim() else one.unsqueeze(dim) for one in pair]
        if any(bool(((one < 0) | (one >= source.shape[dim])).any()) for one in places):
            return True
        chosen = [source.gather(dim, one) for one in places]
        if names.get("sorted") is False:  # the largest in any order
            chosen = [one.sort(dim).values for one in chosen]
        if not is_same(chosen[0], chosen[1]):
            return True
    return False
