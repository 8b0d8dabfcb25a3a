"""Arguments that are no values, as attributes of ONNX."""

from __future__ import annotations

import math
import struct
from typing import Any

import onnx
from onnx import AttributeProto, helper

from .metadata import clean

WHOLE = range(-(2**63), 2**63)


def attribute(name: str, value: Any) -> onnx.AttributeProto:
    """One attribute. ONNX holds 64-bit whole numbers, 32-bit floats, texts and lists of one of them.

    What does not fit without loss, such as 1e-05 in 32 bits, becomes the text that Python writes for it.
    """
    value = list(value) if isinstance(value, (list, tuple)) else value
    if isinstance(value, list) and not value:
        return helper.make_attribute(clean(name) or "unnamed", [], attr_type=AttributeProto.INTS)
    return helper.make_attribute(clean(name) or "unnamed", _fitting(value))


def _fitting(value: Any) -> Any:
    if isinstance(value, list):
        fitting = [_fitting(one) for one in value]
        same = len({type(one) for one in fitting}) == 1 and not isinstance(fitting[0], list)
        return fitting if same else clean(repr(value))
    if isinstance(value, bool) or (isinstance(value, int) and value in WHOLE):
        return int(value)
    if isinstance(value, float) and _fits(value):
        return value
    return clean(value) if isinstance(value, str) else clean(repr(value))


def _fits(value: float) -> bool:
    if not math.isfinite(value):
        return True
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False
