from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from numdrift.harness.backends.eager.mode import EagerMode
from numdrift.harness.observers.state.batches import COMPUTED, Batches, tensors_in
from numdrift.harness.observers.values.digest import Digester
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.values.digest_record import unpack


def batches() -> Batches:
    return Batches(Digester(), EagerMode(parse_mode("cpu")).in_place)


def described(*calls: tuple[Any, ...], **named: Any) -> list[list[list[Any]]]:
    """What a step with these calls has in its event."""
    taken = batches()
    for call in calls:
        taken.called(call, named)
    return taken.settled(taken.take())


def hash_of(tensor: torch.Tensor) -> str:
    """The hash by the implementation in torch, which shares nothing with the native one."""
    return f"{unpack(Digester(native=False).digest([tensor])).hash:016x}"


@dataclass
class Batch:
    ids: torch.Tensor
    weight: float
    mask: torch.Tensor


def test_every_kind_of_nesting_is_entered_in_order() -> None:
    # given
    a, b, c, d, e = (torch.full((2,), float(value)) for value in range(5))
    # when
    [call] = described(([a, {"x": b}], 3, Batch(c, 1.0, d)), last=e)
    # then
    assert call == [["float32", [2], hash_of(one)] for one in (a, b, c, d, e)]


def test_no_tensor_and_no_call_are_told_apart() -> None:
    assert described() == [] and described((1, "text", None)) == [[]]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).view(2, 3).t(),
        torch.zeros(0, 4),
        torch.tensor(True),
        torch.tensor([0.5, -1.5, 3.0], dtype=torch.bfloat16),
        torch.tensor([0.5, -1.5j, 3.0 + 1.0j], dtype=torch.complex64),
        torch.eye(3).to_sparse(),
        torch.ones(2, requires_grad=True),
    ],
    ids=str,
)
def test_a_tensor_of_any_kind_has_a_hash(tensor: torch.Tensor) -> None:
    [[argument]] = described((tensor,))
    assert argument == [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), hash_of(tensor)]


def test_what_was_computed_from_parameters_is_named_without_its_value() -> None:
    hidden = torch.nn.Linear(2, 3)(torch.ones(1, 2))
    assert described((hidden,)) == [[["float32", [1, 3], COMPUTED]]]
    assert described((hidden.detach(),)) == [[["float32", [1, 3], hash_of(hidden)]]]


@pytest.mark.parametrize("how", ["add_", "data", "resized"])
def test_memory_that_is_used_again_within_a_step_is_read_again(how: str) -> None:
    # given
    taken, buffer = batches(), torch.zeros(3)
    taken.called((buffer,), {})
    taken.called((buffer,), {})
    # when
    if how == "add_":
        buffer.add_(1)
    elif how == "data":
        buffer = torch.ones(3)
    else:
        buffer.resize_(0)
    taken.called((buffer,), {})
    # then
    [[first], [second], [third]] = taken.settled(taken.take())
    assert first == second == ["float32", [3], hash_of(torch.zeros(3))]
    assert third == ["float32", list(buffer.shape), hash_of(buffer)]


def test_the_next_step_begins_with_no_call_and_trusts_nothing_that_it_knew() -> None:
    # given memory that changes without torch's knowledge
    taken, memory = batches(), bytearray(16)
    shared = torch.frombuffer(memory, dtype=torch.float32)
    taken.called((shared,), {})
    [[before]] = taken.settled(taken.take())
    # when
    memory[0] = 1
    taken.called((shared,), {})
    # then
    [[after]] = taken.settled(taken.take())
    assert before[2] != after[2] == hash_of(shared)


def test_an_inference_tensor_is_read_each_time() -> None:
    with torch.inference_mode():
        x = torch.zeros(2)
        taken = batches()
        taken.called((x,), {})
        x.add_(1)
        taken.called((x,), {})
    [[first], [second]] = taken.settled(taken.take())
    assert (first[2], second[2]) == (hash_of(torch.zeros(2)), hash_of(torch.ones(2)))


def test_modes_of_the_script_see_no_op() -> None:
    class Refusing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    x = torch.arange(6).view(2, 3).t()
    with Refusing():  # type: ignore[no-untyped-call]
        [[argument]] = described((x,))
    assert argument[2] == hash_of(x)


def test_tensors_in_a_class_are_none() -> None:
    assert list(tensors_in(Batch)) == [] and list(tensors_in("text")) == []
