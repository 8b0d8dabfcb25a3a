"""What is shown once a step has been executed: the text that `print` would write, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import numdrift
from numdrift.harness.backends.eager.mode import EagerMode
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.script.after_step import AfterStep, Waiting, text_of, write_text

ONE, TWO = torch.tensor([1.0, 2.0]), torch.tensor(3)


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("loss", ONE),
        (ONE, TWO),
        ([ONE, TWO], (TWO,), {"a": ONE, 2: [TWO]}),
        (["text", 1, None], 2.5, {"k": ()}),
        ("100 %s {}", TWO),
    ],
)
@pytest.mark.parametrize(("sep", "end"), [(" ", "\n"), (", ", "!\n")])
def test_the_text_is_that_of_print(
    values: tuple[Any, ...], sep: str, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # given
    print(*values, sep=sep, end=end)
    expected = capsys.readouterr().out
    # when
    tensors: list[torch.Tensor] = []
    text = text_of(values, tensors, sep, end)
    write_text(text, tensors)
    # then
    assert capsys.readouterr().out == expected


def after_step() -> AfterStep:
    return AfterStep(EagerMode(parse_mode("cpu")), pytest.fail)


def test_what_waits_is_done_when_the_step_is_settled_with_the_values_of_then() -> None:
    # given a tensor that is changed in place until then
    kept, seen = after_step(), []
    value = torch.zeros(2)
    kept.add(Waiting([value], lambda values: seen.append(values[0].tolist())), between=False)
    value += 1
    # when
    waiting = kept.take()
    assert not seen
    kept.settle(waiting)
    # then
    assert seen == [[1, 1]]
    assert kept.take() == []


def test_between_two_steps_it_is_done_at_once() -> None:
    kept, seen = after_step(), []

    def see(values: Sequence[torch.Tensor]) -> None:
        seen.append(len(values))

    kept.add(Waiting([torch.ones(1), torch.ones(2)], see), between=True)
    assert seen == [2]
    assert kept.take() == []


def test_outside_of_numdrift_python_prints_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    numdrift.print("a", ONE, sep="=")
    numdrift.after_step(print, 1, TWO)
    assert capsys.readouterr().out == "a=tensor([1., 2.])\n1 tensor(3)\n"


def test_a_recording_shows_values_after_their_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # given
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    # when
    with numdrift.record(out=tmp_path, name="shown", mode="cpu"):
        for _ in range(2):
            loss = model(torch.ones(1) * 3).sum()
            numdrift.print("weight", model.weight.detach())
            numdrift.after_step(lambda loss: print("loss", loss.item()), loss)
            loss.backward()
            print("stepping")
            optimizer.step()
            optimizer.zero_grad()
            numdrift.print("after", loss)
    # then what shares its memory with a parameter has the values after the step
    assert capsys.readouterr().out.splitlines() == [
        "stepping", "weight tensor([[-0.5000]])", "loss 3.0", "after tensor(3.)",
        "stepping", "weight tensor([[-2.]])", "loss -1.5", "after tensor(-1.5000)",
    ]  # fmt: skip


def test_what_a_closure_raises_is_raised_where_the_step_ends(tmp_path: Path) -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def refuse(loss: torch.Tensor) -> None:
        raise ValueError(f"loss {loss.item()}")

    with numdrift.record(out=tmp_path, name="raised", mode="cpu"):
        loss = (weight * 3).sum()
        numdrift.after_step(refuse, loss)
        loss.backward()
        with pytest.raises(ValueError, match=r"loss 3\.0"):
            optimizer.step()
