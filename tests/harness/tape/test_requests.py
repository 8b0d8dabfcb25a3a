from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.execute.prepared_call import PreparedCall
from numdrift.harness.localize.execute.worker import Worker
from numdrift.harness.localize.execute.worker_calls import WorkerCalls
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.tape.files.tape_file import tape_file, write_tape
from numdrift.harness.tape.recording.call_log import digest_of
from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.replaying.laid_out import LaidOut, relaid
from numdrift.harness.tape.replaying.replay import Replay, executions, is_same
from numdrift.harness.tape.serving.requests import Requests
from numdrift.harness.tape.serving.step_kernels import CallMemory, ReplayedKernels, spans_of
from numdrift.harness.tape.serving.wire import Message, described, tensors_of
from numdrift.harness.tape.tape import Tape

from .elsewhere import Elsewhere, Executed, Memory
from .trainings import TRAININGS, recorded, started


def held(folder: Path, tape: Tape, kernels: Mapping[int, Any] | None = None) -> Requests:
    """The requests of a run that has recorded this tape, and kernels for some of its steps."""
    (folder / "tapes").mkdir()
    write_tape(tape_file(folder / "tapes", tape.step), tape)
    return Requests(RunConfig(__file__, parse_mode("cpu"), str(folder / "journal")), kernels or {})


def executing(requests: Requests, step: int = 0) -> Callable[[int, Memory], Executed]:
    def execute(position: int, memory: Memory) -> Executed:
        answer = requests.answer(asked(position, memory, step))
        slots = answer.fields["written"]
        outputs, written = (
            answer.segments[: -len(slots) or None],
            answer.segments[len(answer.segments) - len(slots) :],
        )
        return tensors_of(answer.fields["outputs"], outputs), dict(zip(slots, written, strict=True))

    return execute


def asked(position: int, memory: Memory, step: int = 0) -> Message:
    fields: dict[str, Any] = {"request": "execute", "step": step, "position": position}
    fields["memory"] = [[slot, start] for slot, (start, _) in memory.items()]
    return Message(fields, [data for _, data in memory.values()])


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("widen", [0, 1 << 30], ids=["spans", "storages"])
def test_every_call_on_its_own_bytes_gives_every_bit(name: str, widen: int, tmp_path: Path) -> None:
    # given
    tape = started(name).taped()
    requests = held(tmp_path, tape)
    # when each call is executed by request, on nothing but the bytes that it takes
    elsewhere = Elsewhere(len(tape.calls), executing(requests), widen)
    values = Replay(tape).run(elsewhere)
    # then
    assert all(is_same(values[key], value) for key, value in tape.expected().items())
    digests = requests.answer(Message({"request": "digests", "step": 0})).fields["digests"]
    assert_agree(tape, elsewhere.digests, digests)
    assert len(elsewhere.ops) > 20


def assert_agree(tape: Tape, found: list[list[str | None]], digests: list[list[str | None]]) -> None:
    """Every value is the same but scratch, which ops return and nothing has written.

    `transpose_` changes how its argument looks at the same bytes, which only the executing side sees.
    """
    for call, mine, theirs in zip(tape.calls, found, digests, strict=True):
        if call.name == "transpose_":
            continue
        assert len(mine) == len(theirs)
        differing = [one for one, other in zip(mine, theirs, strict=True) if one != other]
        known = [other for one, other in zip(mine, theirs, strict=True) if one != other and other is not None]
        assert not known, call.op
        assert not differing or "empty" in call.name or call.name == "mkldnn_rnn_layer", call.op


def test_digests_are_of_fresh_outputs_then_of_what_was_written() -> None:
    # given
    with recorded() as recorder:
        x = torch.arange(6.0)
        view = x.view(2, 3).t()
        low, _ = view.min(0)
        view[1].mul_(3)
        torch.add(low, 1, out=low)
        recorder.watch("loss 0", x.sum() * low.sum().item())
    tape = recorder.tape()
    # when
    digests = ReplayedKernels(lambda: tape).digests()
    # then
    by_name = dict(zip((call.name for call in tape.calls), digests, strict=True))
    assert by_name["t"] == by_name["view"] == by_name["select"] == by_name["_local_scalar_dense"] == []
    assert by_name["min"] == [digest_of(torch.tensor([0.0, 3.0])), digest_of(torch.tensor([0, 0]))]
    assert by_name["mul_"] == [digest_of(torch.tensor([3.0, 12.0]))]
    assert by_name["add"] == [digest_of(torch.tensor([1.0, 4.0]))]


def test_execution_leaves_the_process_as_it_is() -> None:
    # given a random call
    with recorded() as recorder:
        x = torch.ones(1000)
        recorder.watch("loss 0", torch.dropout(x, 0.5, True))
    tape = recorder.tape()
    kernels = ReplayedKernels(lambda: tape)
    one = next(one for one in executions(tape) if one.call.draw is not None)
    state = torch.get_rng_state()
    # when it is executed with autocast and gradients on, on other values
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad():
        memory = {slot: (0, torch.zeros(size, dtype=torch.uint8)) for slot, (_, size) in spans_of(one.call).items()}
        arguments, keywords = CallMemory(one.call, tape.slots, memory).arguments()
        for tensor in (one for one in arguments if isinstance(one, torch.Tensor)):
            tensor.fill_(2)
        kernels.execute(one, arguments, keywords)
        first = kernels.execute(one, arguments, keywords)
        second = kernels.execute(one, arguments, keywords)
        # then it draws what it drew, and generators, autocast and grad mode are as before
        assert torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()
    assert all(is_same(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_storage_that_an_op_makes_larger_comes_back_whole(tmp_path: Path) -> None:
    with recorded() as recorder:
        out = torch.empty(0)
        torch.add(torch.ones(6), 1, out=out)
        recorder.watch("loss 0", out)
    tape = recorder.tape()
    elsewhere = Elsewhere(len(tape.calls), executing(held(tmp_path, tape)))
    assert Replay(tape).run(elsewhere)["loss 0"].tolist() == [2] * 6


def test_a_span_keeps_its_place_in_the_memory() -> None:
    with recorded() as recorder:
        x = torch.arange(100.0)
        recorder.watch("loss 0", x[37:90] + 1)
    tape = recorder.tape()
    one = next(one for one in executions(tape) if one.call.name == "add")
    [(slot, (first, last))] = spans_of(one.call).items()
    assert (first, last) == (37 * 4, 90 * 4)
    content = torch.arange(100.0).view(torch.uint8)[first:last].clone()
    memory = CallMemory(one.call, tape.slots, {slot: (first, content)})
    (tensor, *_), _ = memory.arguments()
    assert tensor.tolist() == list(range(37, 90))
    assert tensor.data_ptr() % 64 == first % 64
    tensor.zero_()
    assert memory.content(slot).numel() == last - first and not memory.content(slot).any()


@pytest.fixture
def sum_of_a_slice(tmp_path: Path) -> tuple[Requests, int, int]:
    """A held run, the number of its call that takes the bytes 40 to 80 of a storage, and the slot of that."""
    with recorded() as recorder:
        x = torch.arange(30.0)
        recorder.watch("loss 0", x[10:20].sum())
    tape = recorder.tape()
    one = next(one for one in executions(tape) if one.call.name == "sum")
    return held(tmp_path, tape), one.position, next(iter(spans_of(one.call)))


def test_a_request_that_would_read_beyond_its_memory_is_refused(
    sum_of_a_slice: tuple[Requests, int, int],
) -> None:
    requests, position, slot = sum_of_a_slice
    assert requests.answer(asked(position, {slot: (40, torch.zeros(40, dtype=torch.uint8))})).fields["outputs"]
    for start, length in ((40, 39), (41, 40), (80, 40), (0, 79), (0, 0)):
        with pytest.raises(ValueError, match="takes the bytes 40 to 80"):
            requests.answer(asked(position, {slot: (start, torch.zeros(length, dtype=torch.uint8))}))
    content = torch.zeros(120, dtype=torch.uint8)
    for memory in ({}, {slot: (0, content), slot + 1: (0, content)}):
        with pytest.raises(ValueError, match="slot"):
            requests.answer(asked(position, memory))


def test_a_call_is_executed_on_tensors_that_lie_otherwise(tmp_path: Path) -> None:
    # given a call that writes one of two arguments, of a matrix that lay contiguous
    with recorded() as recorder:
        x, y = torch.ones(3, 4), torch.arange(12.0).reshape(3, 4)
        recorder.watch("loss 0", x.add_(y))
    tape = recorder.tape()
    one = next(one for one in executions(tape) if one.call.name == "add_")
    requests = held(tmp_path, tape)
    # when it is asked for with the one transposed, and beginning off a boundary
    turned = relaid(torch.full((3, 4), 2.0), LaidOut((3, 4), (1, 3), 4))
    values, segments = described([turned, y])
    fields = {"request": "relaid", "step": 0, "position": one.position, "tensors": values}
    answer = requests.answer(Message(fields, segments))
    # then it has written what it was given, where it lay, and no other
    assert answer.fields["outputs"] == [None]
    [written] = tensors_of(answer.fields["written"], answer.segments)
    assert written is not None and LaidOut.of(written) == LaidOut.of(turned) and torch.equal(written, 2 + y)
    # and tensors of another size are refused
    values, segments = described([turned[:2], y])
    with pytest.raises(ValueError, match="the sent tensors do not have the number, sizes and dtypes that"):
        requests.answer(Message({**fields, "tensors": values}, segments))
    # and an eager step calls its ops as they are recorded
    assert requests.answer(Message({"request": "called", "step": 0, "position": 0})).fields == {"layouts": None}


class Answering(Worker):
    """A worker in this process."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def _ask(self, fields: Mapping[str, Any], segments: Sequence[torch.Tensor] = ()) -> Message:
        return self._requests.answer(Message(fields, segments))


def test_a_worker_is_asked_for_the_layout_that_is_given(tmp_path: Path) -> None:
    # given a call in place, held in another process, and its arguments as they lay and otherwise
    with recorded() as recorder:
        x, y = torch.ones(3, 4), torch.arange(12.0).reshape(3, 4)
        recorder.watch("loss 0", x.add_(y))
    tape = recorder.tape()
    flow = flow_of(tape)
    [node] = [one for one in flow.nodes if one.call.name == "add_"]
    calls = WorkerCalls(Answering(held(tmp_path, tape)), 0)
    for lies in (LaidOut((3, 4), (4, 1), 0), LaidOut((3, 4), (1, 3), 0), LaidOut((3, 4), (4, 1), 8)):
        given = relaid(torch.full((3, 4), 2.0), lies)
        # when, then
        calls.execute(PreparedCall(0, node, (given, y), {}))
        assert torch.equal(given, 2 + y) and LaidOut.of(given) == lies


@pytest.mark.parametrize(
    "fields",
    [
        {"request": "relaid", "step": 0, "position": 1, "tensors": []},
        {"request": "relaid", "step": 0, "position": 1},
        {"request": "called", "step": 0},
        {},
        {"request": "fly"},
        {"request": ["facts"]},
        {"request": "digests"},
        {"request": "digests", "step": 7},
        {"request": "digests", "step": "../0"},
        {"request": "digests", "step": -1},
        {"request": "execute", "step": 0, "position": 0},
        {"request": "execute", "step": 0, "position": 10**6, "memory": []},
        {"request": "execute", "step": 0, "position": 1, "memory": {}},
        {"request": "execute", "step": 0, "position": 1, "memory": [[0, 0]]},
        {"request": "prepare", "step": 0, "positions": 1},
        {"request": "value", "step": 0},
    ],
)
def test_what_is_no_request_is_refused(sum_of_a_slice: tuple[Requests, int, int], fields: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        sum_of_a_slice[0].answer(Message(fields))


def test_recorded_kernels_answer_in_place_of_a_replay(tmp_path: Path) -> None:
    # given a step that was recorded with its kernels
    class Recorded:
        def digests(self) -> list[list[str | None]]:
            return [[None]]

        def value(self, position: int) -> list[torch.Tensor]:
            return [torch.full((2,), float(position))]

    requests = held(tmp_path, started("mlp").taped(), {0: Recorded()})
    # when
    digests = requests.answer(Message({"request": "digests", "step": 0}))
    value = requests.answer(Message({"request": "value", "step": 0, "position": 3}))
    # then
    assert digests.fields["digests"] == [[None]]
    (found,) = tensors_of(value.fields["tensors"], value.segments)
    assert found is not None and found.tolist() == [3, 3]


@pytest.mark.parametrize("name", ["../away", "/tmp/away", "", ".hidden"])
def test_what_is_compiled_anew_is_written_into_the_runs_own_folder(name: str, tmp_path: Path) -> None:
    requests = held(tmp_path, started("sam").taped())
    mode = parse_mode("compile,backend=eager").to_json()
    with pytest.raises(ValueError, match="is not a valid folder name"):
        requests.answer(Message({"request": "recompile", "step": 0, "mode": mode, "name": name}))


def test_a_step_without_compiled_code_is_not_compiled_anew(tmp_path: Path) -> None:
    requests = held(tmp_path, started("sam").taped())
    mode = parse_mode("compile,backend=eager").to_json()
    answer = requests.answer(Message({"request": "recompile", "step": 0, "mode": mode, "name": "backend.eager"}))
    assert answer.fields == {"reason": "no part of the step is compiled"}
    assert not (tmp_path / "recompiled").exists()


def test_reads_of_unwritten_memory_are_answered_where_the_tape_lies(tmp_path: Path) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        mask = torch.empty(6, 4)
        mask[:4] = 2.0
        return (x * mask).sum()

    recorder = TapeRecorder(0, "train.py", modules=False)
    recorder.start()
    recorder.watch("loss 0", loss(torch.rand(6, 4)))
    recorder.stop()
    answer = held(tmp_path, recorder.tape()).answer(Message({"request": "unwritten", "step": 0}))
    [read] = answer.fields["unwritten"]
    assert (read["made_by"]["op"], read["read_by"]["op"]) == ("aten.empty.memory_format", "aten.mul.Tensor")
    assert set(read["read_by"]) == {"op", "line", "phase", "module"}
