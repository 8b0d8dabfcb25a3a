"""A mode's changes of the execution do what a script would do that is written that way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.adoption_facts import AdoptionFacts
from numdrift.harness.script.changed_execution import ChangedExecution, blocks_of

Report = list[tuple[str, str]]


@contextmanager
def changed(keys: str) -> Iterator[tuple[ChangedExecution, Report]]:
    report: Report = []
    facts = AdoptionFacts(lambda event, **fields: report.append((event, fields["text"])))
    execution = ChangedExecution(parse_mode(f"cpu,{keys}"), __file__, facts)
    execution.install()
    try:
        yield execution, report
    finally:
        execution.close()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2), nn.Tanh()) for _ in range(2))
        self.last = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(self.conv(x), 3).flatten(1)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.last(x)
        return out


def trained(
    execution: ChangedExecution | None = None,
    *,
    prepare: Callable[[nn.Module], object] = lambda model: None,
    clipping: dict[str, Any] | None = None,
    zeroing: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
) -> list[Tensor]:
    """Train three steps; return the parameters and what was left of the gradients after the last zero_grad()."""
    torch.manual_seed(0)
    model = Net()
    prepare(model)
    made = torch.optim.AdamW(model.parameters(), lr=0.01, **(optimizer or {}))
    for number in range(3):
        made.zero_grad(**(zeroing or {}))
        if execution is not None and not number:
            execution.adopt(model)
        model(torch.randn(8, 2, 8, 8)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01, **(clipping or {}))
        made.step()
    if execution is not None:
        execution.first_step_ended()
    made.zero_grad(**(zeroing or {}))
    left = [torch.ones(()) if p.grad is None else p.grad for p in model.parameters()]
    return [*(p.detach() for p in model.parameters()), *left]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(first, second) for first, second in zip(a, b, strict=True))


def recompute(model: nn.Module) -> None:
    for block in model.get_submodule("blocks").children():
        forward = block.forward
        block.forward = lambda x, forward=forward: checkpoint(forward, x, use_reentrant=False)


@pytest.mark.parametrize(
    ("keys", "written", "fact"),
    [
        ("optimizer=fused", {"optimizer": {"fused": True}}, "optimizer=fused: AdamW"),
        ("optimizer=foreach", {"optimizer": {"foreach": True}}, "optimizer=foreach: AdamW"),
        ("clipping=foreach", {"clipping": {"foreach": True}}, "clipping=foreach: clip_grad_norm_"),
        ("zero_grad=zeros", {"zeroing": {"set_to_none": False}}, "zero_grad=zeros: AdamW.zero_grad()"),
        ("checkpointing=on", {"prepare": recompute}, "checkpointing=on: the blocks blocks.0, blocks.1 of Net"),
        (
            "memory_format=channels_last",
            {"prepare": lambda model: model.to(memory_format=torch.channels_last)},
            "memory_format=channels_last: the weights of Net with four dimensions",
        ),
    ],
)
def test_a_key_does_what_a_script_that_is_written_that_way_does(keys: str, written: Any, fact: str) -> None:
    with changed(keys) as (execution, report):
        by_key = trained(execution)

    assert same(by_key, trained(**written))
    assert report == [("adoption", fact)]


def test_the_optimizers_of_a_script_are_loops_if_the_mode_says_so() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.AdamW([parameter], fused=True)

    with changed("optimizer=loop") as (_, report):
        optimizer.step()

    [group] = optimizer.param_groups
    assert (group["foreach"], group["fused"]) == (False, False)
    assert report == [("adoption", "optimizer=loop: AdamW")]


def test_nothing_is_changed_after_the_end() -> None:
    before = trained()
    with changed("optimizer=fused,zero_grad=zeros,clipping=foreach,workers=1"):
        pass

    assert same(before, trained())
    assert DataLoader(TensorDataset(torch.arange(2))).num_workers == 0


def test_each_block_is_computed_again() -> None:
    calls: list[str] = []
    with changed("checkpointing=on") as (execution, _):
        trained(execution, prepare=lambda model: count(model, calls))

    assert calls.count("block") == 2 * 2 * calls.count("model")  # two blocks, in the forward and in the backward


def count(model: nn.Module, calls: list[str]) -> None:
    for block in model.get_submodule("blocks").children():
        block[0].register_forward_hook(lambda *_: calls.append("block"))  # type: ignore[index]
    model.register_forward_hook(lambda *_: calls.append("model"))


def test_a_model_that_is_evaluated_is_not_computed_again() -> None:
    calls: list[str] = []
    model = Net().eval()
    count(model, calls)
    with changed("checkpointing=on") as (execution, _):
        execution.adopt(model)
        model(torch.randn(2, 2, 8, 8)).sum().backward()

    assert calls.count("block") == 2


def test_a_block_in_a_wrapper_that_is_made_anew_is_wrapped_once() -> None:
    blocks = list(Net().get_submodule("blocks").children())
    with changed("checkpointing=on") as (execution, _):
        execution.adopt(nn.Sequential(*blocks))
        before = [block.forward for block in blocks]
        execution.adopt(nn.Sequential(*blocks))

    assert all(block.forward is forward for block, forward in zip(blocks, before, strict=True))


def test_a_model_that_knows_its_blocks_is_asked() -> None:
    class Pretrained(nn.Linear):
        asked: Any = None

        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Any) -> None:
            self.asked = gradient_checkpointing_kwargs

    model = Pretrained(2, 2)
    with changed("checkpointing=on") as (execution, _):
        execution.adopt(model)

    assert model.asked == {"use_reentrant": False}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_has_as_many_processes_as_the_mode_says(workers: int) -> None:
    data = TensorDataset(torch.arange(6))
    with changed(f"workers={workers}"):
        loader = DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True, prefetch_factor=3)
        batches = [batch.tolist() for (batch,) in loader]

    assert loader.num_workers == workers
    assert batches == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("optimizer=fused", "no optimizer that has stepped has this implementation"),
        ("clipping=loop", "the script calls neither clip_grad_norm_ nor clip_grad_value_ of torch.nn.utils"),
        ("zero_grad=none", "the script calls no zero_grad()"),
        ("checkpointing=on", "no model has blocks with parameters"),
        ("memory_format=channels_last", "no model has weights with four dimensions"),
        ("workers=2", "the script makes no torch.utils.data.DataLoader"),
    ],
)
def test_a_key_without_an_effect_is_a_doubt(key: str, reason: str) -> None:
    parameter = nn.Parameter(torch.ones(2))

    class Plain(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            pass

    with changed(key) as (execution, report):
        execution.adopt(nn.Identity())
        Plain([parameter], {}).step()
        execution.first_step_ended()

    assert report == [("doubt", f"{key} changes nothing: {reason}")]


def test_blocks_are_the_members_of_lists_and_else_the_children() -> None:
    nested = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Linear(2, 2))

    assert [name for name, _ in blocks_of(nested)] == ["0", "1"]
    assert [name for name, _ in blocks_of(Net())] == ["blocks.0", "blocks.1"]
    assert [name for name, _ in blocks_of(nn.Bilinear(2, 2, 2))] == []
    assert [name for name, _ in blocks_of(nn.TransformerEncoderLayer(4, 1, 4))][:2] == ["self_attn", "linear1"]
