"""Native code records the same ops as a dispatch mode, and leaves the training as it is."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from numdrift.harness.compiler import cached_library
from numdrift.harness.errors import NotAvailable
from numdrift.harness.observers.calls import native_library
from numdrift.harness.observers.calls import native_ops as native_ops_module
from numdrift.harness.observers.calls.native_choice import NativeChoice
from numdrift.harness.observers.calls.native_library import LibraryBuild, NativeLibrary, remembered_failure
from numdrift.harness.observers.calls.native_ops import TESTED, NativeOps, native_ops, native_source
from numdrift.harness.observers.calls.operation_recorder import OperationRecorder
from numdrift.harness.observers.values.digest import Digester
from numdrift.harness.records import frames
from numdrift.harness.records.values.digest_record import unpack
from numdrift.reproducers.char_gpt import BATCH, CONTEXT, CharGPT
from numdrift.reproducers.resnet_digits import ResNet
from numdrift.reproducers.sam import SAM

pytestmark = [
    pytest.mark.slow,  # compiles the library unless it is cached
    pytest.mark.skipif(not torch.__version__.startswith(TESTED), reason="native code was never tried with this torch"),
]

Line = dict[str, Any]

WITHOUT_A_MODE = {"aten.add_.Tensor": "aten.add.Tensor", "aten._reshape_alias.default": "aten.view.default"}
"""Ops that torch executes unless a dispatch mode is active, and what it executes if one is.

Gradients are accumulated out of place then, and a reshape is a view. It also detaches other tensors."""


@pytest.fixture(scope="module")
def native() -> NativeOps:
    if cached_library(native_source()) is None:
        LibraryBuild().done.wait()
    ops = native_ops()
    assert ops is not None
    return ops


@contextmanager
def recorded(folder: Path, native: NativeOps | None, step: int = 0) -> Iterator[OperationRecorder]:
    recorder = OperationRecorder(folder, Digester(), nullcontext(), values=False)
    recorder.native = native
    recorder.enter(step)
    try:
        yield recorder
    finally:
        recorder.leave()


def lines(folder: Path) -> list[Line]:
    path = folder / frames.OPS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def names(folder: Path) -> list[str]:
    return [line["op"] for line in lines(folder)]


def comparable(recorded_lines: list[Line]) -> list[Line]:
    """Leave out what dispatch modes change in torch itself, and digests of memory that nothing has written."""
    found = []
    for line in recorded_lines:
        if line["op"] == "aten.detach.default":
            continue
        unwritten = ".empty" in line["op"] or ".new_empty" in line["op"]
        found.append(
            line
            | {"op": WITHOUT_A_MODE.get(line["op"], line["op"]), "index": 0}
            | ({"digests": []} if unwritten else {})
        )
    return found


def sam_tanh() -> tuple[torch.nn.Module, Callable[[], Any]]:
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)
    x, labels = torch.rand(50, 64), torch.randint(10, (50,))

    def step() -> None:
        F.cross_entropy(model(x), labels).backward()
        optimizer.first_step(zero_grad=True)
        F.cross_entropy(model(x), labels).backward()
        optimizer.second_step(zero_grad=True)

    return model, step


def resnet_digits() -> tuple[torch.nn.Module, Callable[[], Any]]:
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, labels = torch.rand(8, 1, 8, 8), torch.randint(10, (8,))
    return model, lambda: train(model, optimizer, x, labels)


def char_gpt() -> tuple[torch.nn.Module, Callable[[], Any]]:
    model = CharGPT(30)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, labels = torch.randint(30, (BATCH, CONTEXT)), torch.randint(30, (BATCH * CONTEXT,))
    return model, lambda: train(model, optimizer, x, labels)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, labels: torch.Tensor) -> None:
    loss = F.cross_entropy(model(x).view(len(labels), -1), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def trained(
    script: Callable[[], tuple[torch.nn.Module, Callable[[], Any]]],
    folder: Path,
    native: NativeOps | None,
    *,
    bare: bool,
) -> list[bytes]:
    """Train two steps from the same state; return the bytes of the parameters and of the generator."""
    torch.manual_seed(0)
    model, step = script()
    for number in range(2):
        with nullcontext() if bare else recorded(folder, native, number):
            step()
    states = [*model.state_dict().values(), torch.get_rng_state()]
    return [bytes(state.contiguous().numpy().tobytes()) for state in states]


@pytest.mark.parametrize("script", [sam_tanh, resnet_digits, char_gpt])
def test_a_training_has_the_records_of_a_dispatch_mode_and_the_bits_of_a_bare_one(
    script: Any, tmp_path: Path, native: NativeOps
) -> None:
    # given
    bare = trained(script, tmp_path, None, bare=True)
    trained(script, in_python := made(tmp_path / "python"), None, bare=False)
    # when
    states = trained(script, in_native_code := made(tmp_path / "native"), native, bare=False)
    # then
    assert states == bare
    found, expected = lines(in_native_code), lines(in_python)
    assert len(found) > 100
    assert comparable(found) == comparable(expected)
    for step in (0, 1):
        indices = [line["index"] for line in found if line["step"] == step]
        assert indices == list(range(len(indices)))


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def values() -> None:
    """Execute ops whose results are of every kind that a digest distinguishes."""
    x = torch.arange(12.0).reshape(3, 4)
    torch.ones(2, device="meta")
    torch.eye(2).to_sparse()
    torch.complex(x, x).conj().imag.neg()
    torch.complex(x, x)._neg_view()
    torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    x.to(torch.bfloat16), x.to(torch.float8_e4m3fn), x.bool()
    x.t()[1:].exp(), x.mean(0, keepdim=True).expand(3, 4), x[:, ::2].sqrt()
    torch.add(x, 1, out=torch.zeros(0)), torch.zeros(0)
    torch.cat([x, x]).split(2), x[torch.tensor([0, 1])], x.min(dim=0)
    torch._foreach_add([x, x], 1)
    (x / 0).nan_to_num(), (x - x) / 0


def transformed() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    torch.vmap(torch.func.grad(lambda row: (row.sin() * 2).sum()))(x)
    with torch.inference_mode():
        F.linear(x, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (x @ x.t()).softmax(-1)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("calls", [values, transformed])
def test_each_kind_of_call_is_recorded_as_by_a_dispatch_mode(
    calls: Callable[[], None], tmp_path: Path, native: NativeOps
) -> None:
    for folder, ops in ((made(tmp_path / "python"), None), (made(tmp_path / "native"), native)):
        with recorded(folder, ops):
            calls()
    assert comparable(lines(tmp_path / "native")) == comparable(lines(tmp_path / "python")) != []


def test_a_subclass_is_recorded_by_the_ops_that_it_executes(tmp_path: Path, native: NativeOps) -> None:
    two_tensors: Any = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor
    pair = two_tensors(torch.ones(2), torch.zeros(2))
    with recorded(tmp_path, native):
        total = pair + 1
    assert names(tmp_path) == ["aten.add.Tensor"] * 2
    means = [unpack(bytes.fromhex(line["digests"][0])).mean for line in lines(tmp_path)]
    assert means == [2.0, 1.0] and torch.equal(total.a, torch.full((2,), 2.0))


def test_an_op_that_fails_raises_its_error_and_has_no_line(tmp_path: Path, native: NativeOps) -> None:
    with recorded(tmp_path, native):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        torch.ones(1)
    assert names(tmp_path)[-1] == "aten.ones.default" and "aten.mm.default" not in names(tmp_path)


def test_ops_are_filed_under_the_phase_in_which_they_are_called(tmp_path: Path, native: NativeOps) -> None:
    with recorded(tmp_path, native) as recorder:
        torch.ones(1)
        recorder.phase = "backward"
        torch.ones(1)
    assert [line["phase"] for line in lines(tmp_path)] == ["forward", "backward"]


def test_neither_other_threads_nor_forks_nor_numdrift_itself_are_recorded(tmp_path: Path, native: NativeOps) -> None:
    with recorded(tmp_path, native) as recorder:
        thread = threading.Thread(target=torch.zeros, args=(1,))
        thread.start()
        thread.join()
        process = os.fork()
        if not process:
            recorder.stop()
            torch.zeros(1)
            recorder.leave()
            os._exit(0)
        os.waitpid(process, 0)
        Digester().digest([torch.eye(3).to_sparse()])
    assert names(tmp_path)[0] == "aten.eye.default" and "aten.zeros.default" not in names(tmp_path)


def test_a_full_disk_is_an_error_at_the_end_of_the_step(native: NativeOps) -> None:
    with Path("/dev/full").open("wb") as full:
        native.phase("forward")
        native.enter(full.fileno(), 0)
        torch.ones(1)
        with pytest.raises(OSError, match="No space left"):
            native.leave()


class Doubling(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) * 2


def in_a_mode() -> None:
    with Doubling():  # type: ignore[no-untyped-call]
        torch.ones(1)


def in_a_higher_order_op() -> None:
    numbers = torch.ones(2, 2, dtype=torch.int8)
    torch.ops.higher_order.out_dtype(torch.ops.aten.mm.default, torch.int32, numbers, numbers)


@pytest.mark.parametrize("unusual", [in_a_mode, in_a_higher_order_op])
def test_a_script_that_changes_the_dispatch_is_recorded_in_python(
    unusual: Callable[[], None], tmp_path: Path, native: NativeOps
) -> None:
    # given
    with recorded(made(tmp_path / "python"), None):
        torch.zeros(1)
        unusual()
    expected = lines(tmp_path / "python")
    # when
    events: list[Line] = []
    recorder = OperationRecorder(made(tmp_path / "native"), Digester(), nullcontext(), values=False)
    choice = NativeChoice(recorder, lambda event, **fields: events.append({"event": event, **fields}), nullcontext())
    choice.choose(0)
    recorder.enter(0)
    torch.zeros(1)
    unusual()
    recorder.leave()
    choice.choose(1)
    choice.close()
    # then
    assert lines(tmp_path / "native") == expected
    assert [(event["event"], event["step"], event["native"]) for event in events] == [
        ("ops", 0, True),
        ("ops", 0, False),
    ]
    assert "a dispatch mode" in events[-1]["reason"] and recorder.native is None


def test_a_library_that_does_not_compile_leaves_recording_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    monkeypatch.setenv("NUMDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "/bin/false")
    # when
    build = LibraryBuild()
    assert build.done.wait(60)
    # then
    assert "does not compile" in build.reason or "/bin/false" in build.reason, build.reason
    # and the next trainings of the day do not try again
    library = NativeLibrary()
    monkeypatch.setattr(native_library, "native_ops", lambda: None)  # other tests have loaded another library
    monkeypatch.setattr(native_library, "COMPILE_AFTER", 0.0)
    assert library.ops() is None and library.ops() is None and library.reason == build.reason
    monkeypatch.setattr(native_library, "REMEMBERED", 0)
    assert remembered_failure() == ""


def test_a_training_that_ends_stops_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a compiler that takes long
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nsleep 600\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("NUMDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(compiler))
    build = LibraryBuild()
    # when
    build.cancel()
    # then
    assert build.done.wait(60) and build.reason and not remembered_failure()
    assert not list((tmp_path / "cache").glob("build-*"))


def test_native_code_is_not_tried_with_another_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_ops_module, "TESTED", ("0.1",))
    with pytest.raises(NotAvailable, match="never tried with torch"):
        native_source()
