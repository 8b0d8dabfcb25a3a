"""What the lazy core is about to execute: the TorchScript graph of pending tensors, and the values that it
starts from.

Both follow the same order of the graph's nodes, so the k-th value is the parameter `pk` (torch 2.13). Neither
executes anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import NotAvailable
from .presence import private

NAMED_TUPLE = re.compile(r"NamedTuple\(([^()]*)\)")
"""A type that torch writes into a graph's text and does not read again: `NamedTuple(output : Tensor, weight :
Tensor)`."""


def pending_torchscript(tensors: Sequence[torch.Tensor]) -> str:
    """The graph that computes pending lazy tensors, one output for each, as TorchScript's text."""
    return str(private("torch._C._lazy", "_get_tensors_backend")(list(tensors)))


def pending_data(tensors: Sequence[torch.Tensor]) -> list[tuple[int, torch.Tensor]]:
    """What that graph takes, in the order of its parameters: the core's number of the value (-1 for a number
    that the script has computed with), and the value itself, which must not be written to."""
    ask = private("torch._C._lazy_ts_backend", "_get_tensors_ts_device_data_node")
    numbers, values = ask(list(tensors))
    return list(zip(numbers, values, strict=True))


def parsed_torchscript(text: str) -> Any:
    """The `torch._C.Graph` of a text. Raises NotAvailable for a text that this torch does not read."""
    parse = private("torch._C", "parse_ir")
    try:
        return parse(NAMED_TUPLE.sub(_unnamed, text), True)
    except RuntimeError as error:
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise NotAvailable("the graph of a lazy execution", why) from error


def _unnamed(found: re.Match[str]) -> str:
    types = [part.partition(":")[2].strip() for part in found[1].split(",")]
    return f"({', '.join(types)})"
