"""What makes the batch of a step another one is named with its line, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.tape.tape import Tape

from ..tape.trainings import Training, nobody, recorded
from .pairs import Plant, noise_of, nothing, stepped

THRESHOLD = 16.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.level, self.last = nn.Linear(4, 8), nn.Embedding(200, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor, mask: Tensor, t: Tensor) -> Tensor:
        h = torch.tanh(self.first(x) + self.level(t)[:, None])
        alike = (h @ h.transpose(-1, -2)).masked_fill(mask, -1e9).softmax(-1)
        out: Tensor = self.last(alike @ h)
        return out


class Denoising(Training):
    """Makes mask, levels and noise in the loop; `put` is a batch that is put in place of what was made."""

    def __init__(self) -> None:
        model = Net()
        super().__init__(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.x = torch.randn(6, 5, 4)
        self.mask: Callable[[], Tensor] = lambda: torch.triu(torch.ones(5, 5, dtype=torch.bool), diagonal=1)
        self.levels: Callable[[], Tensor] = lambda: torch.randint(0, 200, (6,))
        self.noise: Callable[[], Tensor] = lambda: torch.randn(6, 5, 4)
        self.gains: Callable[[], Tensor] = lambda: torch.from_numpy(np.arange(6.0)).float()
        self.noisy: Callable[[Tensor, Tensor], Tensor] = lambda x, noise: x + 0.5 * noise
        self.called: Callable[[dict[str, Tensor]], None] = lambda given: None

    def work(self) -> None:
        x, t, noise = self.x * self.gains()[:, None, None], self.levels(), self.noise()
        given = (self.noisy(x, noise), self.mask(), t)
        self.called({f"argument {place}": one for place, one in enumerate(given)})
        self.optimizer.zero_grad()
        self.backward(F.mse_loss(self.model(*given), noise))
        self.optimizer.step()


def taped(plant: Plant, put: Tape | None = None) -> Tape:
    """A tape of the second step with something planted; the batch of the tape `put` is put in place of its own."""

    def both(t: Denoising) -> None:
        torch.manual_seed(7)
        plant(t)

    training = stepped(Denoising, both)
    assert isinstance(training, Denoising)
    with recorded(1) as recorder:

        def called(given: dict[str, Tensor]) -> None:
            recorder.called_with(given)
            for one in () if put is None else put.batch:
                if not torch.equal(given[one.name], one.value):
                    given[one.name].data.copy_(one.value)
                    recorder.overwritten(given[one.name])

        training.called = called
        training.step(recorder.watch)
    training.called, training.saw = lambda given: None, nobody
    return recorder.tape()


def followed(plant: Plant, *, put: bool = False, own: tuple[str, ...] = ()) -> list[Culprit]:
    ours = taped(nothing)
    return culprits_of(ours, taped(plant, ours if put else None), own)


def culprits_of(ours: Tape, theirs: Tape, own: tuple[str, ...] = ()) -> list[Culprit]:
    held = {"a": StepSide(ours, "cpu"), "b": StepSide(theirs, "bad")}
    found = localize_step(held, noise_of(ours), THRESHOLD, lambda text: None, own=own)  # type: ignore[arg-type]
    return [one for one in found.culprits if one.batch]


def early(t: Denoising) -> None:
    t.mask = lambda: torch.triu(torch.ones(5, 5, dtype=torch.bool), diagonal=0)


def short(t: Denoising) -> None:
    right = t.levels
    t.levels = lambda: right().to(torch.int8).long().clamp(min=0)


def louder(t: Denoising) -> None:
    right = t.noise
    t.noise = lambda: right() * 1.25


def subtracted(t: Denoising) -> None:
    t.noisy = lambda x, noise: x - 0.5 * noise


def extra(t: Denoising) -> None:
    right = t.levels

    def levels() -> Tensor:
        torch.rand(3)
        return right()

    t.levels = levels


def longer(t: Denoising) -> None:
    right = t.levels

    def levels() -> Tensor:
        torch.randint(0, 200, (9,))
        return right()

    t.levels = levels


BOTH = ["argument 0", "argument 2"]


@pytest.mark.parametrize("put", [False, True], ids=["own", "put"])
@pytest.mark.parametrize(
    ("plant", "op", "arguments", "said"),
    [
        (early, "aten.triu", ["argument 1"], "triu (*) receives diagonal=0 in bad, 1 in cpu"),
        (short, "aten._to_copy", ["argument 2"], "only bad executes _to_copy with dtype=int8 (*), "),
        (louder, "aten.mul", ["argument 0"], "only bad executes mul with other=1.25 (*)"),
        (subtracted, "aten.sub", ["argument 0"], "bad executes sub (*) where cpu executes add (*)"),
        (extra, "aten.randint", BOTH, "the generator is in a different state after rand (*), which only bad executes"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_op_is_named(plant: Plant, op: str, arguments: list[str], said: str, put: bool) -> None:
    (culprit,) = followed(plant, put=put)
    assert (culprit.op, culprit.phase, list(culprit.batch or ())) == (op, "data", arguments)
    assert culprit.is_proven and culprit.local_significance == "different-setup"
    # the innermost line that is not a library's, whichever file it is in
    assert str(culprit.source).rpartition("/")[2].startswith(("test_batch_difference.py:", "trainings.py:"))
    text = culprit.text or ""
    assert said.replace("*", "#") in _without_lines(text), text


def _without_lines(text: str) -> str:
    """`triu (trainings.py:12)` with its line left out."""
    parts = text.split("(")
    return "(".join([parts[0], *("#)" + one.partition(")")[2] for one in parts[1:])])


def test_two_faults_of_one_batch_are_two_culprits() -> None:
    def both(t: Denoising) -> None:
        early(t)
        louder(t)

    assert {one.op for one in followed(both)} == {"aten.triu", "aten.mul"}


def test_what_comes_from_outside_has_no_op_but_is_described() -> None:
    def gains(t: Denoising) -> None:
        t.gains = lambda: torch.from_numpy(np.arange(6.0) + np.array([0, 0, 0, 0.5, 0, 0])).float()

    (culprit,) = followed(gains)
    assert (culprit.kind, culprit.op, list(culprit.batch or ())) == ("setup", None, ["argument 0"])
    assert "float64 [6], 1 of 6 elements differ, by up to 0.5; first read by _to_copy (" in (culprit.text or "")
    assert "outside of torch" in (culprit.text or "")


@pytest.mark.parametrize("put", [False, True], ids=["own", "put"])
def test_data_that_no_op_has_touched_is_described(put: bool) -> None:
    def mask(t: Denoising) -> None:
        t.mask = lambda: torch.from_numpy(np.triu(np.ones((5, 5), dtype=bool), 0))

    def right(t: Denoising) -> None:
        t.mask = lambda: torch.from_numpy(np.triu(np.ones((5, 5), dtype=bool), 1))

    ours = taped(right)
    theirs = taped(mask, ours if put else None)
    (culprit,) = culprits_of(ours, theirs)
    assert (culprit.op, list(culprit.batch or ())) == (None, ["argument 1"])
    assert "no op of the step computed it (bool [5, 5], 5 of 25 elements differ; first read by" in (culprit.text or "")


def test_what_the_training_makes_itself_did_not_come_from_outside() -> None:
    def other(t: Denoising) -> None:
        t.x = t.x + 0.5

    (culprit,) = followed(other)
    assert culprit.op is None and "of 120 elements differ, by up to 0.5" in (culprit.text or "")
    assert not followed(other, own=("argument 0",))


def test_equal_batches_are_not_followed() -> None:
    def rounded(t: Denoising) -> None:
        t.optimizer.param_groups[0]["lr"] = 0.2

    assert not followed(rounded)
