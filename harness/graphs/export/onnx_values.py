"""Values as ONNX types: dtype and shape of an edge, and what it is to the script."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from ...records.graph_record import Value
from .metadata import clean, describe

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
    """The type of one value; without a type where neither dtype nor shape is known.

    A dtype that ONNX lacks becomes UNDEFINED, and its name stands in the metadata.
    """
    made = onnx.ValueInfoProto()
    if value.dtype or value.shape is not None:
        shape = None if value.shape is None else [_dimension(size) for size in value.shape]
        dtype = DTYPES.get(value.dtype, TensorProto.UNDEFINED)
        made = helper.make_tensor_value_info("value", dtype, shape)
    made.name = clean(name)
    made.doc_string = clean(value.binding)
    unknown = value.dtype if value.dtype not in DTYPES else ""
    describe(made, {"binding": value.binding, "dtype": unknown})
    return made


def known(value: Value | None) -> bool:
    """Whether the checker of ONNX takes this value as an input or output: it wants a shape."""
    return value is not None and value.shape is not None


def _dimension(size: int | str) -> int | str:
    return clean(size) if isinstance(size, str) else size
