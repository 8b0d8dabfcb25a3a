from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from numdrift.harness.tape.recording.followed_calls import FollowedOps
from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.replaying.ensemble import measure_noise
from numdrift.harness.tape.replaying.replay import AsRecorded, Replay, is_same
from numdrift.harness.tape.storages import SlotTable
from numdrift.harness.tape.tape import NotReplayable, Tape

from .trainings import Training, recorded, started


def calls_of(tape: Tape, phase: str) -> list[tuple[str, str | None]]:
    return [(call.name, call.module) for call in tape.calls if call.phase == phase]


@pytest.mark.parametrize("made", ["before", "in the step"])
def test_what_is_given_past_every_op_is_an_input(made: str) -> None:
    weight, x = nn.Parameter(torch.randn(3)), torch.randn(4, 3)
    with recorded() as recorder:
        taken = x.detach() if made == "before" else x * 2
        torch.sum(taken)  # an op that takes the values that the script had
        taken.data.untyped_storage().copy_(torch.randn(4, 3).untyped_storage())
        recorder.overwritten(taken)
        loss = (taken * weight).square().sum()
        recorder.watch("loss 0", loss)
        recorder.watch("gradient 0 weight", torch.autograd.grad(loss, weight)[0])
    noise = measure_noise(recorder.tape(), 2)
    assert noise.equal, noise.reason


def test_a_view_stays_that_of_its_own_storage() -> None:
    table, first, stands_for_it, second = SlotTable(), *(torch.randn(4) for _ in range(3))
    slot = table.view(first, is_input=True).slot
    table.assign(stands_for_it, slot)
    seen = table.tensor(table.view(second, is_input=True))
    assert seen is not None and seen.data_ptr() == second.data_ptr()
    table.renew(first)
    assert table.slot_of(first) != slot == table.slot_of(stands_for_it)


def test_calls_know_their_phase_and_module() -> None:
    tape = started("averaged", 1).taped()
    phases = [call.phase for call in tape.calls]
    assert list(dict.fromkeys(phases)) == ["data", "forward", "backward", "optimizer"]
    assert phases == sorted(phases, key=["data", "forward", "backward", "optimizer"].index)
    assert {("mul_", None), ("add_", None)} == set(calls_of(tape, "data"))
    assert {("addmm", "0"), ("tanh", "1"), ("addmm", "2"), ("_log_softmax", None)} <= set(calls_of(tape, "forward"))
    backward = {("tanh_backward", "1"), ("mm", "0"), ("mm", "2"), ("nll_loss_backward", None)}
    assert backward <= set(calls_of(tape, "backward"))


def test_two_passes_alternate() -> None:
    phases = [call.phase for call in started("sam").taped().calls]
    changes = [one for one, before in zip(phases, [None, *phases], strict=False) if one != before]
    assert changes == ["forward", "backward", "optimizer"] * 2


def test_backward_ops_carry_the_number_of_their_forward_op() -> None:
    tape = started("mlp").taped()
    forward = {call.name: call.sequence for call in tape.calls if call.phase == "forward"}
    backward = {call.name: call.sequence for call in tape.calls if call.phase == "backward"}
    assert backward["tanh_backward"] == forward["tanh"] is not None
    assert backward["native_batch_norm_backward"] == forward["native_batch_norm"]
    assert forward["tanh"] != forward["native_batch_norm"]


def test_without_hooks_modules_are_those_that_hooks_name() -> None:
    training = started("mlp")
    with recorded(modules=False) as recorder:
        training.step(recorder.watch)
    calls, hooked = recorder.tape().calls, started("mlp").taped().calls
    # but for the hand-over of a gradient to its parameter, which belongs to no op of the forward
    places = [
        [(call.name, call.phase, call.module) for call in tape if call.name != "detach"] for tape in (calls, hooked)
    ]
    assert places[0] == places[1]
    assert {call.phase for call in calls} >= {"forward", "backward", "optimizer"}


def test_calls_of_the_optimizer_name_their_parameter() -> None:
    tape = started("mlp").taped()
    owners = [call.owners for call in tape.calls if call.phase == "optimizer"]
    names = [name for name, _ in started("mlp").model.named_parameters()]
    assert list(dict.fromkeys(owners)) == [(name,) for name in names]
    assert all(not call.owners for call in tape.calls if call.module is not None)


def test_calls_for_all_parameters_at_once_name_them_all() -> None:
    tape = started("foreach").taped()
    names = tuple(name for name, _ in started("foreach").model.named_parameters())
    assert {call.owners for call in tape.calls if call.name == "_foreach_addcdiv_"} == {names}


def test_an_op_of_the_backward_has_the_line_of_its_forward() -> None:
    calls = started("mlp").taped().calls
    forward = {call.name: call.line for call in calls if call.phase == "forward"}
    backward = {call.name: call.line for call in calls if call.phase == "backward"}
    assert backward["tanh_backward"] == forward["tanh"] is not None
    assert backward["nll_loss_backward"] == forward["nll_loss_forward"]
    # which is not that of the call of `backward`, where the gradients are made that belong to nothing before
    assert forward["ones_like"] not in (forward["tanh"], forward["nll_loss_forward"])


def test_calls_know_their_line() -> None:
    lines = {call.line for call in started("mlp").taped().calls}
    assert None not in lines
    assert all(str(line).partition(":")[0].endswith("trainings.py") for line in lines)


def test_random_ops_are_known_with_what_they_drew() -> None:
    # given dropout, and an op that draws without saying so
    library = torch.library.Library("numdrift_tape_test", "DEF")
    library.define("sneaky(Tensor x) -> Tensor")
    library.impl("sneaky", lambda x: x + torch.rand(x.shape), "CPU")
    # when
    with recorded() as recorder:
        mask = F.dropout(torch.ones(50), 0.5)
        value = torch.ops.numdrift_tape_test.sneaky(mask)
        recorder.watch("loss 0", value)
        torch.relu(value)
    # then
    draws = {call.name: call.draw for call in recorder.tape().calls if call.draw is not None}
    assert set(draws) == {"bernoulli_", "sneaky"}
    bernoulli, sneaky = draws["bernoulli_"], draws["sneaky"]
    assert bernoulli is not None and torch.equal(bernoulli.drawn[0] * 2, mask)
    assert sneaky is not None and torch.equal(sneaky.drawn[0], value)
    assert not torch.equal(bernoulli.states[0].state, sneaky.states[0].state)
    library._destroy()


def test_inputs_are_as_they_were_before_anything_wrote_them() -> None:
    value = torch.arange(4.0)
    with recorded() as recorder:
        value[1:].add_(1)
        recorder.watch("loss 0", value)
    tape = recorder.tape()
    [data] = tape.inputs.values()
    assert data.view(torch.float32).tolist() == [0, 1, 2, 3]
    assert tape.expected()["loss 0"].tolist() == [0, 2, 3, 4]


NESTED = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def subclass() -> None:
    NESTED * 2


def higher_order() -> None:
    from torch._higher_order_ops.associative_scan import associative_scan_op

    associative_scan_op(lambda x, y: (x + y,), (torch.ones(4),), ())


def meta() -> None:
    torch.ones(2, device="meta") + 1


def conjugate() -> None:
    torch.matmul(torch.ones(2, 2, dtype=torch.complex64).conj(), torch.ones(2, 2, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (subclass, "class NestedTensor"),
        (higher_order, "higher-order operator associative_scan"),
        (meta, "device meta"),
        (conjugate, "conjugate"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_tape_cannot_hold_is_its_reason(step: Any, words: str) -> None:
    # when
    with recorded() as recorder:
        torch.ones(2)
        step()
        after = torch.ones(2) + 1
    # then the script went on, and the tape says why there is none
    assert after.tolist() == [2, 2]
    with pytest.raises(NotReplayable, match=words):
        recorder.tape()


class Table(Training):
    """A table with sparse gradients, and a dense layer behind it."""

    def __init__(self) -> None:
        self.table, self.top = nn.EmbeddingBag(10, 4, mode="sum", sparse=True), nn.Linear(4, 1)
        super().__init__(nn.ModuleList([self.table, self.top]), torch.optim.SGD([*self.table.parameters()], 0.1))
        self.dense = torch.optim.SGD(self.top.parameters(), 0.1)
        self.rows = torch.randint(10, (6, 3))

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.dense.zero_grad()
        self.backward(self.top(self.table(self.rows)).square().mean())
        self.optimizer.step()
        self.dense.step()


def test_a_tape_holds_what_is_dense_of_a_step_with_sparse_gradients() -> None:
    # given a step in which the table's gradient is sparse
    torch.manual_seed(0)
    training = Table()
    with recorded() as recorder:
        training.step(recorder.watch)
    tape = recorder.tape()
    # then what is dense replays bit for bit, and what follows from the sparse gradient is not on the tape
    names = {watched.name for watched in tape.watched}
    of_top = {f"{kind} 1.{of}" for kind in ("gradient 0", "parameter") for of in ("weight", "bias")}
    assert of_top <= names and "loss 0" in names
    assert not [name for name in names if "0.weight" in name and "state" not in name]
    values = Replay(tape).run(AsRecorded())
    assert [name for name, value in tape.expected().items() if not is_same(values[name], value)] == []
    assert recorder.left_out.startswith("the tape leaves out ") and "sparse" in recorder.left_out
    # a step without them is whole
    with recorded() as recorder:
        started("mlp").step(recorder.watch)
    assert recorder.left_out == ""


def test_what_only_reads_a_sparse_value_is_left_out_too() -> None:
    with recorded() as recorder:
        dense = torch.ones(3) * 2
        sparse = torch.eye(3).to_sparse()
        product = torch.sparse.mm(sparse, dense[:, None])
        after = product + 1
        dense.add_(sparse.sum(0).to_dense())
        recorder.watch("loss 0", after)
        recorder.watch("loss 1", dense)
        recorder.watch("loss 2", torch.ones(2) + 1)
    assert [watched.name for watched in recorder.tape().watched] == ["loss 2"]
    assert after.flatten().tolist() == [3, 3, 3] and dense.tolist() == [3, 3, 3]


def test_a_collective_is_a_reason() -> None:
    library = torch.library.Library("_c10d_functional", "FRAGMENT")
    library.define("numdrift_test(Tensor x) -> Tensor")
    library.impl("numdrift_test", lambda x: x.clone(), "CPU")
    with recorded() as recorder:
        torch.ops._c10d_functional.numdrift_test(torch.ones(2))
    with pytest.raises(NotReplayable, match="the step calls numdrift_test: ops of several ranks are not replayed"):
        recorder.tape()
    library._destroy()


def test_an_op_that_raises_reaches_the_script_and_no_tape() -> None:
    with recorded() as recorder:
        with pytest.raises(RuntimeError, match="size"):
            torch.ones(2) + torch.ones(3)
        recorder.watch("loss 0", torch.ones(1) + 1)
    assert [call.name for call in recorder.tape().calls] == ["ones", "ones", "ones", "add"]


def test_a_failure_of_the_recorder_leaves_the_script_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numdrift.harness.tape.origin.script_frames", lambda _: 1 / 0)
    with recorded() as recorder:
        value = torch.ones(2) + 1
        recorder.watch("loss 0", value)
    assert value.tolist() == [2, 2]
    with pytest.raises(NotReplayable, match="ZeroDivisionError"):
        recorder.tape()


def test_a_fork_records_nothing() -> None:
    with recorded() as recorder:
        torch.ones(1)
        recorder._process = os.getpid() + 1  # as a forked worker of a data loader finds it
        torch.ones(1)
    assert len(recorder.tape().calls) == 1


class Script(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_modes_may_be_left_in_any_order() -> None:
    # given a mode of the script's and one of the recorder's, entered after and before the tape
    seen: list[str] = []
    before = FollowedOps(lambda call: call, lambda call, outputs: seen.append(str(call.operation)))
    after = Script()  # type: ignore[no-untyped-call]
    before.__enter__()  # type: ignore[no-untyped-call]
    recorder = TapeRecorder(0, __file__, modules=True)
    recorder.start()
    after.__enter__()  # type: ignore[no-untyped-call]
    # when
    before.__exit__(None, None, None)
    torch.ones(1)
    recorder.stop()
    torch.zeros(1)
    after.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    # then
    assert [call.name for call in recorder.tape().calls] == ["ones"]
    assert not seen
    recorder.stop()
