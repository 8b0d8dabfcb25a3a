"""Values, arguments and facts in ONNX's terms: types of edges, attributes of nodes, and metadata."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, helper

from ...records.tools.graph_record import Value

# Values as ONNX types: dtype and shape of an edge, and its binding to the script.

DTYPES: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "complex64": TensorProto.COMPLEX64,
    "complex128": TensorProto.COMPLEX128,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "int16": TensorProto.INT16,
    "int8": TensorProto.INT8,
    "uint64": TensorProto.UINT64,
    "uint32": TensorProto.UINT32,
    "uint16": TensorProto.UINT16,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}


def value_info(name: str, value: Value) -> onnx.ValueInfoProto:
    """Return the ONNX record of one value, without a type if neither dtype nor shape is known.

    A dtype that ONNX lacks becomes UNDEFINED; the metadata has its name.
    """
    made = onnx.ValueInfoProto()
    if value.dtype or value.shape is not None:
        # A symbolic size (`s0`) is a string, which ONNX reads as the name of a dimension.
        sizes = value.shape
        shape = None if sizes is None else [clean(size) if isinstance(size, str) else size for size in sizes]
        dtype = DTYPES.get(value.dtype, TensorProto.UNDEFINED)
        made = helper.make_tensor_value_info("value", dtype, shape)
    made.name = clean(name)
    made.doc_string = clean(value.binding)
    unknown = value.dtype if value.dtype not in DTYPES else ""
    describe(made, {"binding": value.binding, "dtype": unknown})
    return made


def has_shape(value: Value | None) -> bool:
    """Check whether ONNX's checker accepts this value as an input or output, which must have a shape."""
    return value is not None and value.shape is not None


# Arguments other than values, as ONNX attributes.

WHOLE = range(-(2**63), 2**63)


def attribute(name: str, value: Any) -> onnx.AttributeProto:
    """Create one attribute. ONNX has 64-bit integers, 32-bit floats, strings, and lists of one of these.

    A value that does not fit without loss, such as 1e-05 in 32 bits, becomes its Python text.
    """
    value = list(value) if isinstance(value, (list, tuple)) else value
    # make_attribute cannot infer the type of an empty list.
    if isinstance(value, list) and not value:
        return helper.make_attribute(clean(name) or "unnamed", [], attr_type=AttributeProto.INTS)
    return helper.make_attribute(clean(name) or "unnamed", _fitting(value))


def _fitting(value: Any) -> Any:
    if isinstance(value, list):
        # A list must be flat and of one type; any other list is written as one text.
        fitting = [_fitting(item) for item in value]
        same = len({type(item) for item in fitting}) == 1 and not isinstance(fitting[0], list)
        return fitting if same else clean(repr(value))
    if isinstance(value, bool) or (isinstance(value, int) and value in WHOLE):
        return int(value)
    if isinstance(value, float):
        try:
            if not math.isfinite(value) or struct.unpack("f", struct.pack("f", value))[0] == value:
                return value
        except OverflowError:
            pass  # too large for a 32-bit float
    return clean(value) if isinstance(value, str) else clean(repr(value))


# Metadata of ONNX records: pairs of text that Netron lists beside a node.

LONGEST = 1900
"""The maximum number of characters in one part of a text: Netron 9 shows only the first 2,000."""


def describe(proto: Any, pairs: Mapping[str, object]) -> None:
    """Add the pairs whose values are not empty to a record's `metadata_props`."""
    for key, value in pairs.items():
        if value is not None and value != "":
            entry = proto.metadata_props.add()
            entry.key, entry.value = clean(key), clean(str(value))


def in_parts(key: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield a short text under its key, and a long text in parts, `key 1/3`, `key 2/3` and so on.

    Parts end at line ends, except within a line that is too long for one part.
    """
    parts: list[str] = [""]
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), LONGEST):
            piece = line[start : start + LONGEST]
            if parts[-1] and len(parts[-1]) + len(piece) > LONGEST:
                parts.append("")
            parts[-1] += piece
    if len(parts) == 1:
        yield key, text
        return
    yield from ((f"{key} {number}/{len(parts)}", part) for number, part in enumerate(parts, 1))


def clean(text: str) -> str:
    """Return the text with characters that UTF-8 cannot encode replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
