"""Which content of which storage is read and made, against what torch's own version counters say."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import FlowNode, StorageFlow, flow_of

from ..tape.trainings import started
from .pairs import Small, stepped, taped
from .programs import Program, programs, tape_of

Saw = Callable[[str, Tensor], None]


def flow(work: Callable[[Saw], None]) -> StorageFlow:
    return flow_of(taped(work))


def node(found: StorageFlow, name: str) -> FlowNode:
    return next(one for one in found.nodes if one.call.name == name)


def test_views_are_no_nodes_and_share_the_content_of_their_storage() -> None:
    def work(saw: Saw) -> None:
        x = torch.ones(4, 4)
        saw("loss 0", x.t()[1:].exp() + x.view(16)[:12].view(3, 4))

    found = flow(work)
    assert [one.call.name for one in found.nodes] == ["ones", "exp", "add"]
    ones, exp, add = found.nodes
    assert exp.reads[0].value == add.reads[1].value == ones.made[0].value
    assert found.makers[exp.made[0].value] == 1
    assert add.reads[1].view.size == (3, 4)


def test_a_write_makes_a_new_content_and_reads_see_the_one_of_their_time() -> None:
    def work(saw: Saw) -> None:
        x = torch.ones(4)
        before = x * 2
        saw("loss 0", x)
        x.add_(1)
        saw("loss 1", x)
        saw("loss 2", before + x)

    found = flow(work)
    before, add, last = node(found, "mul"), node(found, "add_"), found.nodes[-1]
    read, written = add.reads[0].value, add.writes[0].value
    assert read == before.reads[0].value and written.slot == read.slot
    assert (read.version, written.version) == (0, 1)
    assert last.reads[1].value == written
    assert found.watched["loss 0"].value == read and found.watched["loss 1"].value == written
    assert add.made == list(add.writes) and add.makes == (None,)


def test_a_write_through_a_view_is_seen_through_every_alias() -> None:
    def work(saw: Saw) -> None:
        x = torch.zeros(4, 4)
        alias = x.t()
        x[1].mul_(3)
        alias[2:].copy_(torch.ones(2, 4))
        saw("loss 0", alias.exp())

    found = flow(work)
    first, second, exp = node(found, "mul_"), node(found, "copy_"), node(found, "exp")
    assert [first.writes[0].value.version, second.writes[0].value.version] == [1, 2]
    assert exp.reads[0].value == second.writes[0].value
    assert found.makers[exp.reads[0].value] == found.nodes.index(second)


def test_what_comes_from_before_the_step_is_made_by_nobody() -> None:
    x = torch.ones(3)

    def work(saw: Saw) -> None:
        x.mul_(2)
        saw("loss 0", x)

    found = flow(work)
    write = found.nodes[0]
    assert write.reads[0].value not in found.makers and write.reads[0].value.slot in found.tape.inputs
    assert found.makers == {write.writes[0].value: 0}


def test_a_list_that_is_written_writes_each_of_its_storages_once() -> None:
    parameters = [torch.ones(2), torch.ones(3)]

    def work(saw: Saw) -> None:
        torch._foreach_add_(parameters, 1.0)
        saw("loss 0", parameters[1])

    found = flow(work)
    assert [one.value.version for one in found.nodes[0].writes] == [1, 1]
    assert len({one.value.slot for one in found.nodes[0].writes}) == 2


def test_two_passes_are_two_iterations() -> None:
    found = flow_of(started("sam", 0).taped())
    linear = [one for one in found.nodes if one.call.name == "addmm"]
    assert [one.iteration for one in linear] == [0, 0, 1, 1]
    assert {one.iteration for one in found.nodes if one.call.phase == "backward"} == {0, 1}
    assert {one.iteration for one in flow_of(stepped(Small).taped(1)).nodes} == {0}


def test_a_value_is_whole_where_all_of_it_is_looked_at_in_one_way() -> None:
    def work(saw: Saw) -> None:
        x, y = torch.ones(4, 4), torch.ones(4, 4)
        saw("loss 0", x[:2] + y[2:])
        saw("loss 1", y.sum())

    found = flow(work)
    part, other = node(found, "add").reads
    assert not found.is_whole(part.view, part.value)
    assert not found.is_whole(other.view, other.value)
    read = node(found, "sum").reads[0]
    assert found.is_whole(read.view, read.value)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_every_read_is_of_the_last_content_that_was_made(program: Program) -> None:
    found = flow_of(tape_of(program))
    made: dict[int, int] = {}
    for number, one in enumerate(found.nodes):
        for use in one.reads:
            assert use.value.version == made.get(use.value.slot, 0)
            assert found.makers.get(use.value, -1) < number
        for use in one.writes:
            made[use.value.slot] = use.value.version
            assert found.makers[use.value] == number
