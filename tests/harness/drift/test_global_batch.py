from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numdrift.harness.drift.agreement import agreement
from numdrift.harness.drift.global_batch import compare_global_batch
from numdrift.harness.drift.wholes import whole_steps, whole_values
from numdrift.harness.observers.values.digest import Digester
from numdrift.harness.observers.values.sketch import Sketcher
from numdrift.harness.records import frames
from numdrift.harness.records.values.sketch_record import NOTHING, pack_sketch
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.runs.recorded_run import RecordedRun
from numdrift.harness.tape.files.journal_writing import EventLog, FrameFile, bytes_of

State = Mapping[str, torch.Tensor]
SHAPES = {"up.weight": (5, 4), "up.bias": (5,), "down.weight": (1, 5)}
CUT_ALONG = {"up.weight": 0, "up.bias": 0, "down.weight": 1}


def manifest(rank: int, world_size: int) -> RunManifest:
    return RunManifest(
        "cpu",
        "cpu",
        "",
        "train.py",
        "0" * 64,
        [],
        "params",
        "",
        0,
        "",
        "complete",
        rank=rank,
        world_size=world_size,
    )


class Writer:
    """Writes the journal of one rank as the recorder does; `place` says where its part of a tensor lies."""

    def __init__(self, folder: Path, rank: int = 0, world_size: int = 1, *, sketches: bool = True) -> None:
        self.folder, self.rank, self.world_size = folder, rank, world_size
        (folder / "journal").mkdir(parents=True)
        self._log = EventLog(folder / "journal" / frames.EVENTS)
        self._files = {
            name: FrameFile(folder / "journal" / name)
            for name in (frames.DIGESTS, frames.SKETCHES, frames.values_file(0))
        }
        self._sketches = sketches
        self._started = False

    def step(
        self, step: int, values: State, gradients: State, loss: float, cuts: Mapping[str, tuple[int, int]]
    ) -> None:
        if not self._started:
            self._started = True
            self._log.write("tensors", table=0, tensors=[self._described(name, cuts) for name in values])
        parts = [self._part(one, name, cuts) for group in (values, gradients) for name, one in group.items()]
        self._frame(frames.DIGESTS, step, [Digester().digest(parts)])
        if self._sketches:
            self._frame(frames.SKETCHES, step, [self._sketch(name, one, cuts) for name, one in
                                                zip([*values, *gradients], parts, strict=True)])  # fmt: skip
        self._frame(frames.values_file(0), step, [bytes_of(one) for one in parts[: len(values)]])
        self._log.write("step", step=step, losses=[loss], seconds=0.0)

    def run(self) -> RecordedRun:
        return RecordedRun(self.folder, manifest(self.rank, self.world_size))

    def _frame(self, name: str, step: int, payload: Sequence[Any]) -> None:
        self._files[name].frame(0, step, payload, sum(len(one) for one in payload))

    def _described(self, name: str, cuts: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        shape = list(SHAPES[name])
        entry: dict[str, Any] = {"name": name, "kind": "parameter", "dtype": "float32", "shape": shape}
        if name not in cuts:
            return entry
        along, (first, last) = CUT_ALONG[name], cuts[name]
        offset = [0] * len(shape)
        offset[along], entry["shape"][along] = first, last - first
        place = {"placements": [f"shard {along}"], "mesh": [self.world_size], "at": [self.rank]}
        return entry | {"shard": {"whole": list(SHAPES[name]), "offset": offset, **place}}

    def _part(self, whole: torch.Tensor, name: str, cuts: Mapping[str, tuple[int, int]]) -> torch.Tensor:
        if name not in cuts:
            return whole
        first, last = cuts[name]
        return whole.narrow(CUT_ALONG[name], first, last - first).contiguous()

    def _sketch(self, name: str, part: torch.Tensor, cuts: Mapping[str, tuple[int, int]]) -> bytes:
        if name not in cuts:
            return pack_sketch(Sketcher().sketch(part) or NOTHING)
        offset = [0] * len(SHAPES[name])
        offset[CUT_ALONG[name]] = cuts[name][0]
        return pack_sketch(Sketcher().sketch(part, SHAPES[name], offset) or NOTHING)


def state(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def cut_in(at: Mapping[str, int], rank: int) -> dict[str, tuple[int, int]]:
    """Two ranks: the first has what is before the cut."""
    return {name: (0, place) if rank == 0 else (place, SHAPES[name][CUT_ALONG[name]]) for name, place in at.items()}


Fault = Callable[[int, int, str, dict[str, torch.Tensor]], None]
"""May change the state of a rank in place: step, rank, what (value or gradient), the tensors."""


def no_fault(step: int, rank: int, what: str, tensors: dict[str, torch.Tensor]) -> None:
    pass


def recorded(
    folder: Path, at: Mapping[str, int], fault: Fault = no_fault, *, sketches: bool = True
) -> tuple[RecordedRun, list[RecordedRun]]:
    """Four steps of a single run, and of two ranks with the same numbers but for the fault."""
    single = Writer(folder / "single", sketches=sketches)
    ranks = [Writer(folder / f"several{rank}", rank, 2) for rank in (0, 1)]
    for step in range(4):
        values, gradients = state(2 * step), state(2 * step + 1)
        single.step(step, values, gradients, 1.0 / (step + 1), {})
        for rank, writer in enumerate(ranks):
            own = [{name: one.clone() for name, one in group.items()} for group in (values, gradients)]
            fault(step, rank, "value", own[0])
            fault(step, rank, "gradient", own[1])
            loss = (1.0 + 0.25 * (1 - 2 * rank)) / (step + 1)
            writer.step(step, own[0], own[1], loss, cut_in(at, rank))
    return single.run(), [writer.run() for writer in ranks]


CUTS = st.fixed_dictionaries({name: st.integers(0, SHAPES[name][along]) for name, along in CUT_ALONG.items()})
COUNT = itertools.count()


@given(at=CUTS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_add_up_to_the_whole(at: Mapping[str, int], tmp_path: Path) -> None:
    single, ranks = recorded(tmp_path / str(next(COUNT)), at)
    for (step, ours), (other, theirs) in zip(whole_steps([single]), whole_steps(ranks), strict=True):
        assert step == other and ours.keys() == theirs.keys()
        assert len(ours) == 2 * len(SHAPES)
        for key, a in ours.items():
            b, tensor = theirs[key], state(2 * step + (key[0] == "gradient"))[key[1]].double()
            assert (b.numel, b.nan, b.inf) == (tensor.numel(), 0, 0)
            assert (b.minimum, b.maximum) == (float(tensor.min()), float(tensor.max()))
            assert b.l2 == pytest.approx(float(tensor.norm()), rel=1e-12)
            assert a.sketch == pytest.approx(b.sketch, abs=1e-12)
        wholes, _ = whole_values(ranks, step)
        for name, one in state(2 * step).items():
            assert wholes[name].tobytes() == one.numpy().tobytes()
    found = compare_global_batch(single, ranks)
    assert found.losses.max_relative is not None and found.losses.max_relative < 1e-15
    assert found.jump is None and all(one.relative_l2 == 0.0 for one in found.final)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_in_one_shard_of_a_value_is_named(rank: int, tmp_path: Path) -> None:
    def fault(step: int, at: int, what: str, tensors: dict[str, torch.Tensor]) -> None:
        if (step, at, what) == (2, rank, "value"):
            tensors["up.weight"] += 1e-3

    single, ranks = recorded(tmp_path, {"up.weight": 3, "up.bias": 3, "down.weight": 2}, fault)
    jump = compare_global_batch(single, ranks).jump
    assert jump is not None
    assert (jump.at.step, jump.at.what, jump.at.tensor, jump.at.rank) == (2, "value", "up.weight", rank)
    # the distance is exact: of 20 elements those of the rank's rows are 1e-3 off
    rows = 3 if rank == 0 else 2
    expected = 1e-3 * math.sqrt(4 * rows) / float(state(4)["up.weight"].double().norm())
    assert jump.at.how == "values" and jump.at.relative_l2 == pytest.approx(expected, rel=1e-3)


def test_an_error_in_one_shard_of_a_gradient_is_named_and_estimated(tmp_path: Path) -> None:
    def fault(step: int, at: int, what: str, tensors: dict[str, torch.Tensor]) -> None:
        if (step, at, what) == (1, 1, "gradient"):
            tensors["up.weight"] *= 1.001

    single, ranks = recorded(tmp_path, {"up.weight": 3, "up.bias": 3, "down.weight": 2}, fault)
    jump = compare_global_batch(single, ranks).jump
    assert jump is not None
    assert (jump.at.step, jump.at.what, jump.at.tensor, jump.at.how) == (1, "gradient", "up.weight", "sketch")
    whole = state(3)["up.weight"].double()
    exact = float((whole[3:] * 0.001).norm() / whole.norm())
    assert 0.4 < jump.at.relative_l2 / exact < 1.7


@pytest.mark.parametrize(("in_ranks", "nonfinite"), [(1.0, False), (math.nan, True)])
def test_a_value_that_is_zero_in_the_single_run_is_not_called_nonfinite(
    in_ranks: float, nonfinite: bool, tmp_path: Path
) -> None:
    single, ranks = (Writer(tmp_path / "single"), [Writer(tmp_path / f"several{rank}", rank, 2) for rank in (0, 1)])
    for writer, value in ((single, 0.0), (ranks[0], in_ranks), (ranks[1], in_ranks)):
        writer.step(0, {**state(0), "up.bias": torch.full(SHAPES["up.bias"], value)}, state(1), 1.0, {})
    final = compare_global_batch(single.run(), [writer.run() for writer in ranks]).final
    (bias,) = (distance for distance in final if (distance.what, distance.tensor) == ("value", "up.bias"))
    assert not math.isfinite(bias.relative_l2) and bias.nonfinite == nonfinite


def test_without_sketches_norms_are_compared_and_it_says_so(tmp_path: Path) -> None:
    def fault(step: int, at: int, what: str, tensors: dict[str, torch.Tensor]) -> None:
        if (step, at, what) == (1, 1, "gradient"):
            tensors["up.weight"] *= 2.0

    single, ranks = recorded(tmp_path, {"up.weight": 3}, fault, sketches=False)
    found = compare_global_batch(single, ranks)
    assert found.jump is not None and found.jump.at.how == "norm"
    assert "--sketches" in found.lacking[0]


def test_a_nan_in_a_shard_is_infinitely_far(tmp_path: Path) -> None:
    def fault(step: int, at: int, what: str, tensors: dict[str, torch.Tensor]) -> None:
        if (step, at, what) == (3, 0, "gradient"):
            tensors["up.bias"][0] = math.nan

    single, ranks = recorded(tmp_path, {"up.bias": 3}, fault)
    last = compare_global_batch(single, ranks).final[0]
    assert (last.what, last.tensor, last.relative_l2, last.nonfinite) == (
        "gradient",
        "up.bias",
        math.inf,
        True,
    )


def test_copies_that_differ_are_a_disagreement(tmp_path: Path) -> None:
    def fault(step: int, at: int, what: str, tensors: dict[str, torch.Tensor]) -> None:
        if step >= 2 and at == 1 and what == "gradient":
            one = tensors["down.weight"]
            one[0, 0] = torch.nextafter(one[0, 0], torch.tensor(9.0))

    _, ranks = recorded(tmp_path, {"up.weight": 3}, fault)
    found = agreement(ranks)
    assert found is not None and found.first is not None and not found.agree
    assert (found.first.step, found.first.what, found.first.tensor, found.first.rank) == (
        2,
        "gradient",
        "down.weight",
        1,
    )
    # up.weight is cut, so the ranks have two copies of the other two
    assert found.tensors == 2


def test_equal_copies_agree_and_parts_alone_say_nothing(tmp_path: Path) -> None:
    _, ranks = recorded(tmp_path / "copies", {})
    found = agreement(ranks)
    assert found is not None and found.agree and (found.tensors, found.steps) == (3, 4)
    _, ranks = recorded(tmp_path / "parts", {"up.weight": 3, "up.bias": 2, "down.weight": 4})
    assert agreement(ranks) is None
