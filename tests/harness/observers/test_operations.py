from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift.harness.observers.calls.operation_recorder import FLUSH_AT, OperationRecorder
from numdrift.harness.observers.values.digest import Digester
from numdrift.harness.records import frames
from numdrift.harness.records.values.digest_record import RECORD_BYTES, unpack
from numdrift.harness.tape.files.journal_writing import bytes_of


@contextmanager
def recorded(folder: Path, step: int = 0, *, values: bool = False) -> Iterator[OperationRecorder]:
    recorder = OperationRecorder(folder, Digester(), nullcontext(), values=values)
    recorder.enter(step)
    try:
        yield recorder
    finally:
        recorder.leave()


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / frames.OPS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def names(folder: Path) -> list[str]:
    return [line["op"] for line in lines(folder)]


def digest_of(tensor: torch.Tensor) -> str:
    return Digester().digest([tensor]).hex()


def train_a_step(phase: Callable[[str], None] = lambda _: None) -> list[torch.Tensor]:
    """One step of a tiny MLP; gives its loss, gradients and new parameters."""
    generator = torch.Generator().manual_seed(0)
    first, second, x = (torch.randn(4, 4, generator=generator) for _ in range(3))
    weights = [first.requires_grad_(), second.requires_grad_()]
    optimizer = torch.optim.SGD(weights, lr=0.1, foreach=False)
    loss = torch.tanh(x @ first).mm(second).square().sum()
    phase("backward")
    loss.backward()
    phase("optimizer")
    optimizer.step()
    return [loss, *(weight.grad for weight in weights if weight.grad is not None), *weights]


def test_a_step_is_listed_op_by_op(tmp_path: Path) -> None:
    # given
    with recorded(tmp_path, step=3) as recorder:
        # when
        train_a_step(lambda phase: setattr(recorder, "phase", phase))
    # then
    found = lines(tmp_path)
    assert [line["index"] for line in found] == list(range(len(found)))
    assert {line["step"] for line in found} == {3}
    phases = [line["phase"] for line in found]
    assert list(dict.fromkeys(phases)) == ["forward", "backward", "optimizer"]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)
    ops = [line["op"] for line in found if line["phase"] == "forward"]
    expected = ["aten.mm.default", "aten.tanh.default", "aten.mm.default", "aten.pow.Tensor_Scalar"]
    assert [op for op in ops if op in expected] == expected
    assert "aten.tanh_backward.default" in [line["op"] for line in found if line["phase"] == "backward"]
    assert "aten.add_.Tensor" in [line["op"] for line in found if line["phase"] == "optimizer"]


def test_an_op_has_the_digests_of_its_outputs(tmp_path: Path) -> None:
    # given
    a, b = torch.randn(2, 3), torch.randn(3, 2)
    # when
    with recorded(tmp_path):
        product = a @ b
        low, index = product.min(dim=0)
    # then
    matmul, minimum = lines(tmp_path)
    assert matmul["inputs"] == [["float32", [2, 3]], ["float32", [3, 2]]]
    assert matmul["outputs"] == [["float32", [2, 2]]]
    assert matmul["digests"] == [digest_of(product)] and len(digest_of(product)) == 2 * RECORD_BYTES
    assert minimum["op"] == "aten.min.dim"
    assert minimum["outputs"] == [["float32", [2]], ["int64", [2]]]
    assert minimum["digests"] == [digest_of(low), digest_of(index)]


def test_a_changed_bit_changes_the_digest(tmp_path: Path) -> None:
    value = torch.ones(5)
    with recorded(tmp_path):
        value.mul(1.0)
        value.mul(1.0 + 2**-23)
    one, other = lines(tmp_path)
    assert one["digests"] != other["digests"]


def test_an_op_in_place_is_digested_as_it_leaves_it(tmp_path: Path) -> None:
    value = torch.ones(3)
    with recorded(tmp_path):
        value.add_(1.0)
        value.mul_(3.0)
    assert [line["digests"] for line in lines(tmp_path)] == [
        [digest_of(torch.full((3,), 2.0))],
        [digest_of(torch.full((3,), 6.0))],
    ]


def test_lists_of_tensors_count_as_their_tensors(tmp_path: Path) -> None:
    with recorded(tmp_path):
        torch.cat([torch.zeros(1), torch.ones(2)])
    concatenated = lines(tmp_path)[-1]
    assert concatenated["op"] == "aten.cat.default"
    assert concatenated["inputs"] == [["float32", [1]], ["float32", [2]]]


@pytest.mark.parametrize("values", [False, True], ids=["digests", "tensors"])
def test_recording_changes_no_bit(tmp_path: Path, values: bool) -> None:
    # given
    plain = train_a_step()
    # when
    with recorded(tmp_path, values=values):
        observed = train_a_step()
    # then
    assert len(lines(tmp_path)) > 10
    assert [bytes(bytes_of(tensor)) for tensor in observed] == [bytes(bytes_of(tensor)) for tensor in plain]


def test_outputs_are_kept_on_request(tmp_path: Path) -> None:
    # given
    a = torch.arange(6.0).reshape(2, 3)
    # when
    with recorded(tmp_path, step=4, values=True):
        transposed = a.t()
        product = a @ transposed
    # then a frame an output, numbered as the op is
    path = tmp_path / frames.TENSORS
    content = path.read_bytes()
    found = [(at.step, at.table, content[at.offset : at.offset + at.length]) for at in frames.scan_frames(path)]
    assert found == [
        (4, index, tensor.contiguous().numpy().tobytes()) for index, tensor in enumerate([transposed, product])
    ]


def test_outputs_are_not_kept_otherwise(tmp_path: Path) -> None:
    with recorded(tmp_path):
        torch.ones(2)
    assert not (tmp_path / frames.TENSORS).exists()


def test_what_has_no_plain_bytes_does_not_stop_the_script(tmp_path: Path) -> None:
    # given
    with recorded(tmp_path, values=True):
        # when
        torch.ones(2, device="meta")
        torch.eye(2).to_sparse()
        plain = torch.ones(3)
    # then each is listed, and what can be kept is
    found = lines(tmp_path)
    assert found[0]["outputs"] == [["float32", [2]]]
    assert not unpack(bytes.fromhex(found[0]["digests"][0])).readable
    assert found[-1]["digests"] == [digest_of(plain)]
    assert [at.table for at in frames.scan_frames(tmp_path / frames.TENSORS)][-1] == found[-1]["index"]


def test_nothing_is_listed_outside_of_a_step(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        pass
    torch.ones(2) + 1
    recorder.leave()
    assert lines(tmp_path) == []


def test_each_step_counts_its_ops_from_0(tmp_path: Path) -> None:
    recorder = OperationRecorder(tmp_path, Digester(), nullcontext(), values=False)
    for step in (2, 5):
        recorder.enter(step)
        torch.ones(2).mul(3.0)
        recorder.leave()
    assert [(line["step"], line["index"]) for line in lines(tmp_path)] == [(2, 0), (2, 1), (5, 0), (5, 1)]


def test_lines_are_written_in_between(tmp_path: Path) -> None:
    # given more lines than are held back
    value = torch.ones(2)
    with recorded(tmp_path):
        for _ in range(FLUSH_AT // 100):
            value.mul(2.0)
        # then some are on disk before the step has ended, all of them complete
        early = lines(tmp_path)
        assert early
    assert names(tmp_path) == ["aten.mul.Tensor"] * (FLUSH_AT // 100)
    assert len(early) < len(lines(tmp_path))


def test_calls_of_one_op_are_told_apart_by_their_tensors_and_phases(tmp_path: Path) -> None:
    # given calls of one op, some of which are repeated
    def calls() -> list[torch.Tensor]:
        values = [torch.ones(2, 3), torch.ones(3, 2), torch.ones(2, 3, dtype=torch.float64)]
        return [value.mul(other) for value in values for other in (2.0, torch.ones(()))]

    # when
    with recorded(tmp_path) as recorder:
        products = [*calls(), *calls()]
        recorder.phase = "backward"
        products += calls()
    # then each line is that of its own call
    found = [line for line in lines(tmp_path) if line["op"] == "aten.mul.Tensor"]
    assert [line["phase"] for line in found] == 12 * ["forward"] + 6 * ["backward"]
    described = [[[str(product.dtype).removeprefix("torch."), list(product.shape)]] for product in products]
    assert [line["outputs"] for line in found] == described
    assert [line["digests"] for line in found] == [[digest_of(product)] for product in products]
    assert [line["inputs"][1] for line in found[1::2]] == 9 * [["float32", []]]
    assert [line["inputs"] for line in found[:6]] == [line["inputs"] for line in found[6:12]]
