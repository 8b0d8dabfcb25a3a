"""Tensor files against a reader of the layout that is written out here, and against damage."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import JournalError
from numdrift.harness.runs.mapped_tensors import read_tensor_file
from numdrift.harness.tape.files.tensor_file import read_tensors, write_tensors

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.complex128: "C128",
}
IN_ONE_FOLDER = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def spelled_out(path: Path) -> tuple[dict[str, tuple[str, tuple[int, ...], bytes]], dict[str, Any]]:
    """The layout as its definition has it: nothing of numdrift's own."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    facts = json.loads(header.pop("__metadata__")["numdrift"])
    data = content[8 + length :]
    found, covered = {}, []
    for name, one in header.items():
        start, end = one["data_offsets"]
        covered.append((start, end))
        found[name] = (one["dtype"], tuple(one["shape"]), data[start:end])
    covered.sort()
    assert [0, *(end for _, end in covered)] == [*(start for start, _ in covered), len(data)]
    assert (8 + length) % 8 == 0
    return found, facts


def elements(tensor: torch.Tensor) -> bytes:
    """A tensor's elements in row-major order, one by one."""
    flat = [tensor[index].reshape(1) for index in np.ndindex(*tensor.shape)]
    return b"".join(bytes(one.clone().view(torch.uint8).tolist()) for one in flat)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of any dtype, shape and strides."""
    dtype = draw(st.sampled_from(sorted(NAMES, key=str)))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    item = torch.empty(0, dtype=dtype).element_size()
    raw = draw(st.binary(min_size=math.prod(shape) * item, max_size=math.prod(shape) * item))
    data = torch.tensor(list(raw), dtype=torch.uint8)
    tensor = (data.bool() if dtype == torch.bool else data.view(dtype)).reshape(shape)
    tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
    for dimension in range(tensor.dim()):
        if tensor.shape[dimension]:
            start = draw(st.integers(0, tensor.shape[dimension] - 1))
            tensor = tensor.narrow(dimension, start, tensor.shape[dimension] - start)
    if tensor.dim() and draw(st.booleans()):
        tensor = tensor[:1].expand(3, *tensor.shape[1:]) if tensor.shape[0] else tensor
    return tensor


@given(given_tensors=st.dictionaries(st.text(max_size=8), tensors(), max_size=4))
@IN_ONE_FOLDER
def test_what_is_written_is_read_bit_for_bit(tmp_path: Path, given_tensors: dict[str, torch.Tensor]) -> None:
    # given
    path = tmp_path / "a.safetensors"
    given_tensors.pop("__metadata__", None)
    # when
    write_tensors(path, given_tensors, {"step": 3})
    # then another reader finds the elements, and so do both of ours
    found, facts = spelled_out(path)
    assert facts == {"step": 3}
    expected = {name: (NAMES[one.dtype], tuple(one.shape), elements(one)) for name, one in given_tensors.items()}
    assert found == expected
    read, facts = read_tensors(path)
    assert facts == {"step": 3} and set(read) == set(given_tensors)
    for name, one in read.items():
        assert one.dtype == given_tensors[name].dtype and elements(one) == expected[name][2]
    views = read_tensor_file(path)
    for name, array in views.tensors.items():
        true = given_tensors[name]
        assert views.dtypes[name] == str(true.dtype).removeprefix("torch.")
        wide = true.float() if true.dtype == torch.bfloat16 else true
        assert array.shape == tuple(true.shape) and array.tobytes() == elements(wide)
        assert not array.flags.writeable


def test_what_is_read_is_memory_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.arange(4.0)}, {})
    before = path.read_bytes()
    read, _ = read_tensors(path)
    read["a"].add_(1)
    assert read["a"].tolist() == [1, 2, 3, 4] and path.read_bytes() == before


def test_rare_types_are_widened_and_named(tmp_path: Path) -> None:
    # given
    path = tmp_path / "a.safetensors"
    values = torch.tensor([[0.0, 1.5], [-2.0, 0.0]])
    given_tensors = {
        "sparse": values.to_sparse(),
        "float8": values.to(torch.float8_e4m3fn),
        "quantized": torch.quantize_per_tensor(values, 0.5, 0, torch.qint8),
        "conjugate": torch.tensor([1 + 2j]).conj(),
    }
    # when
    write_tensors(path, given_tensors, {"step": 1})
    # then
    file = read_tensor_file(path)
    for name in ("sparse", "float8", "quantized"):
        np.testing.assert_array_equal(file.tensors[name], values.numpy())
    assert file.tensors["conjugate"].tolist() == [1 - 2j]
    assert file.dtypes["float8"] == "float8_e4m3fn" and file.dtypes["quantized"] == "qint8"
    read, facts = read_tensors(path)
    assert read["float8"].dtype == torch.float8_e4m3fn and read["quantized"].dtype == torch.float32
    assert facts["dtypes"] == {"float8": "float8_e4m3fn", "quantized": "qint8"}


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    # given a file, and a tensor that cannot be read
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.zeros(2)}, {})
    before = path.read_bytes()
    # when
    with pytest.raises((RuntimeError, NotImplementedError)):
        write_tensors(path, {"a": torch.ones(2), "b": torch.ones(2, device="meta")}, {})
    # then
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def crafted(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> Mapping[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


DAMAGED = {
    "empty": b"",
    "a few bytes": b"\x01\x02",
    "a header beyond the file": crafted({}, length=2**63),
    "a huge header": crafted({}, length=2**64 - 1),
    "no JSON": crafted(b"{"),
    "no UTF-8": crafted(b"\xff\xfe"),
    "a list": crafted([1]),
    "a number": crafted(5),
    "nested too deep": crafted(b"[" * 100_000),
    "an endless number": crafted(b'{"a":' + b"9" * 5000 + b"}"),
    "facts that are none": crafted({"__metadata__": {"numdrift": "[]"}}),
    "metadata that is none": crafted({"__metadata__": [1]}),
    "an entry that is none": crafted({"a": 1}),
    "an unknown dtype": crafted(one(dtype="F33"), bytes(4)),
    "a dtype that is none": crafted(one(dtype=["F32"]), bytes(4)),
    "beyond the end": crafted(one(offsets=(0, 8), shape=(2,)), bytes(4)),
    "before the beginning": crafted(one(offsets=(-4, 0)), bytes(4)),
    "into the header": crafted(one(offsets=(-8, -4)), bytes(4)),
    "backwards": crafted(one(offsets=(4, 0)), bytes(4)),
    "a wrong size": crafted(one(shape=(2,)), bytes(4)),
    "a negative shape": crafted(one(shape=(-1, -1)), bytes(4)),
    "a fractional shape": crafted(one(shape=(1.0,)), bytes(4)),
    "a shape of truths": crafted(one(shape=(True,)), bytes(4)),
    "an endless dimension": crafted(one(shape=(2**64, 0), offsets=(0, 0))),
    "overflowing strides": crafted(one(shape=(0, 2**62, 2**62), offsets=(0, 0))),
    "too many dimensions": crafted(one(shape=(1,) * 65), bytes(4)),
    "fractional offsets": crafted(one(offsets=(0.0, 4.0)), bytes(4)),
    "three offsets": crafted(one(offsets=(0, 4, 4)), bytes(4)),
    "a gap": crafted(one(offsets=(4, 8)), bytes(8)),
    "a tail": crafted(one(), bytes(5)),
    "an overlap": crafted({**one(), "b": one()["a"]}, bytes(4)),
    "a name twice": crafted(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        bytes(4),
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("read", [read_tensors, read_tensor_file])
def test_a_damaged_file_is_refused_in_one_line(read: Any, damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(DAMAGED[damage])
    with pytest.raises(JournalError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: ") and "\n" not in str(refused.value)
    assert len(str(refused.value)) < len(str(path)) + 400


@pytest.mark.parametrize("read", [read_tensors, read_tensor_file])
def test_what_is_no_file_is_refused(read: Any, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(JournalError, match="cannot be read"):
            read(path)


@given(data=st.data())
@IN_ONE_FOLDER
def test_no_damage_gives_anything_but_the_files_bytes(tmp_path: Path, data: st.DataObject) -> None:
    # given a file with some bytes exchanged or its end cut off
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.arange(6.0).reshape(2, 3), "b": torch.arange(3)}, {"step": 1})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    path.write_bytes(content)
    # when, then
    for read in (lambda: read_tensors(path)[0], lambda: dict(read_tensor_file(path).tensors)):
        try:
            found = read()
        except JournalError as error:
            assert "\n" not in str(error)
        else:
            kept = b"".join(sorted(bytes(np.asarray(one).tobytes()) for one in found.values()))
            assert len(kept) <= len(content)


def test_the_facts_key_is_no_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="__metadata__"):
        write_tensors(tmp_path / "a", {"__metadata__": torch.zeros(1)}, {})
