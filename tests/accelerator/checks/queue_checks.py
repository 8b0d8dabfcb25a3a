"""Work that is done late: order, errors, counts, events, a device that is lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn


def run_yet(event: torch.Event) -> bool:
    return event.query()


def mark(standin: Any) -> torch.Event:
    event: torch.Event = standin.Event(enable_timing=True)
    event.record()
    return event


def check_kernels_wait_for_a_synchronization(standin: Any) -> None:
    tensor = torch.ones(3, device="standin") + 1
    for synchronize in (
        tensor.cpu,
        tensor[0].item,
        standin.synchronize,
        torch.accelerator.synchronize,
        tensor.tolist,
        tensor.nonzero,
        functools.partial(torch.zeros(3).copy_, tensor),
    ):
        tensor += 1
        event = mark(standin)
        assert not run_yet(event)
        synchronize()
        assert run_yet(event)
    assert tensor.tolist() == [9, 9, 9]


def check_the_queue_is_not_endless(standin: Any) -> None:
    tensor = torch.zeros(3, device="standin")
    event = mark(standin)
    for _ in range(250):
        tensor += 1
    assert not run_yet(event)
    for _ in range(250):
        tensor += 1
    assert run_yet(event)
    assert tensor.tolist() == [500, 500, 500]


def check_kernels_may_run_at_once(standin: Any) -> None:
    torch.ones(3, device="standin")
    assert run_yet(mark(standin))
    embedding = nn.Embedding(3, 2).to("standin")
    with pytest.raises(RuntimeError, match="index out of range"):
        embedding(torch.tensor([5], device="standin"))


def check_what_the_host_gives_is_taken_at_once(standin: Any) -> None:
    values, number = torch.arange(3.0), torch.tensor(2.0)
    tensor = values.to("standin")
    product = tensor * number
    values.zero_()
    number.zero_()
    assert product.tolist() == [0, 2, 4]


def check_views_and_writes_keep_their_order(standin: Any) -> None:
    base = torch.zeros(4, 4, device="standin")
    column, row = base[:, 1], base[2]
    before = base.clone()
    column += 1
    row.mul_(3)
    base.t()[0].fill_(7)
    total = base.sum()
    base.zero_()
    torch.add(row, 5, out=column)
    assert before.sum().item() == 0
    assert total.item() == 4 * 7 + 3 + 3
    assert base.tolist() == [[0, 5, 0, 0]] * 4


def check_an_out_argument_is_resized(standin: Any) -> None:
    out = torch.empty(0, device="standin")
    torch.mul(torch.arange(3.0, device="standin"), 2, out=out)
    assert out.shape == (3,)
    assert out.tolist() == [0, 2, 4]
    values, places = torch.empty(0, device="standin"), torch.empty(0, device="standin", dtype=torch.int64)
    torch.sort(torch.tensor([3.0, 1.0, 2.0], device="standin"), out=(values, places))
    assert (values.tolist(), places.tolist()) == ([1, 2, 3], [1, 2, 0])
    found = torch.empty(0, device="standin", dtype=torch.int64)
    torch.nonzero(torch.tensor([0, 1, 1], device="standin"), out=found)
    assert found.tolist() == [[1], [2]]


def check_a_wrong_shape_is_refused_where_it_is_called(standin: Any) -> None:
    tensor = torch.ones(2, 3, device="standin")
    calls: tuple[Callable[[], object], ...] = (
        lambda: tensor + torch.ones(2, device="standin"),
        lambda: tensor @ tensor,
        lambda: tensor.mul_(torch.ones(2, device="standin")),
        lambda: nn.functional.layer_norm(tensor, [4]),
        lambda: torch.cat([tensor, torch.ones(2, 2, device="standin")]),
    )
    for call in calls:
        with pytest.raises(RuntimeError):
            call()
    assert tensor.sum().item() == 6


def check_what_a_kernel_raises_comes_with_the_synchronization(standin: Any) -> None:
    embedding = nn.Embedding(3, 2).to("standin")
    vectors = embedding(torch.tensor([1, 5], device="standin"))
    loss = (vectors * 2).sum()
    with pytest.raises(RuntimeError, match=r"standin: aten::index_select failed: index out of range in self"):
        loss.item()
    for call in (loss.cpu, lambda: loss + 1, standin.synchronize, lambda: torch.ones(1, device="standin")):
        with pytest.raises(RuntimeError, match="index out of range"):
            call()


def check_a_missing_kernel_leaves_the_device_as_it_was(standin: Any) -> None:
    singular = torch.eye(2, device="standin", dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="not implemented for 'BFloat16'"):
        torch.linalg.eigh(singular)
        standin.synchronize()
    assert singular.sum().item() == 2


def check_launches_and_copies_are_counted(standin: Any) -> None:
    tensor = torch.arange(4.0).to("standin")
    launches, copies = standin.launches(), standin.copies()
    doubled = tensor * 2 + 1
    doubled.view(2, 2).t()
    assert standin.launches() == launches + 2
    doubled.cpu()
    tensor.copy_(torch.zeros(4))
    doubled[0].item()
    after = standin.copies()
    assert after.to_host - copies.to_host == 2
    assert after.to_device - copies.to_device == 1
    assert after.bytes - copies.bytes == 16 + 16 + 4


def check_events_tell_the_time_of_the_device(standin: Any) -> None:
    tensor = torch.ones(400, 400, device="standin")
    begin = mark(standin)
    for _ in range(5):
        tensor @ tensor
    end = mark(standin)
    empty = mark(standin)
    end.synchronize()
    assert begin.elapsed_time(end) > 10 * end.elapsed_time(empty) > 0
    assert standin.current_stream().device == torch.device("standin:0")


def check_a_lost_device_raises_from_then_on(standin: Any) -> None:
    tensor = torch.ones(3, device="standin")  # the first launch
    for _ in range(4):
        tensor = tensor + 1
    for call in (
        lambda: tensor + 1,
        tensor.cpu,
        tensor.sum,
        standin.synchronize,
        lambda: torch.empty(3, device="standin"),
        lambda: tensor.copy_(torch.ones(3)),
        lambda: tensor[0].item(),
    ):
        with pytest.raises(RuntimeError, match=r"^standin: the device is lost$"):
            call()
    assert standin.launches() == 5
    assert tensor.shape == (3,)
    torch.manual_seed(0)


VARIABLES = {
    "check_kernels_may_run_at_once": {"STANDIN_EAGER": "1"},
    "check_a_lost_device_raises_from_then_on": {"STANDIN_LOST_AT": "5"},
}
