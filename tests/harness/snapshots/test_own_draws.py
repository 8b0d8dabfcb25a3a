"""Replays of what Inductor's own generator drew: elsewhere other numbers are drawn, which is not a fault."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from click.testing import CliRunner

from numdrift.harness.cli.program import program
from numdrift.harness.snapshots.snapshot_file import write_snapshot
from numdrift.harness.snapshots.snapshot_record import Port, outputs_of_own_draws
from numdrift.harness.tape.tape import Call, Slot, Tape, View, Watched
from numdrift.harness.tools.bundle.replaying import replay_snapshots
from numdrift.harness.tools.snapshots.replay_answer import answer_of

from .samples import snapshot_of

SEEDS = View(0, torch.int64, 0, (1,), (1,))
SEED = View(1, torch.int64, 0, (), ())
DRAWN, KEPT, WRITTEN, PLAIN = (View(slot, torch.float32, 0, (64,), (1,)) for slot in (2, 3, 4, 5))
OUTPUTS = {"saved random": DRAWN, "output 1": KEPT, "output 2": WRITTEN, "output 3": PLAIN}


def call(op: str, output: View, *arguments: object) -> Call:
    return Call(op, arguments, {}, (output,), (True,), "forward", None, (), None, False, None)


CALLS = (
    call("prims.inductor_seeds.default", SEEDS, 1, torch.device("cpu")),
    call("prims.inductor_lookup_seed.default", SEED, SEEDS, 0),
    call("aten.ones.default", WRITTEN, (64,)),
    call("prims.inductor_random.default", DRAWN, (64,), SEED, "rand"),
    call("aten.mul.Tensor", KEPT, DRAWN, 2.0),
    call("aten.mul_.Tensor", WRITTEN, WRITTEN, KEPT),
    call("aten.ones.default", PLAIN, (64,)),
)


def tape_of(plain: float) -> Tape:
    slots = tuple(Slot(size, "cpu", dtype) for size, dtype in [(8, torch.int64)] * 2 + [(256, torch.float32)] * 4)
    drawn = torch.full((64,), 0.25)
    values = (drawn, 2 * drawn, 2 * drawn, torch.full((64,), plain))
    watched = tuple(
        Watched(len(CALLS), f"output {number}", view, value)
        for number, (view, value) in enumerate(zip(OUTPUTS.values(), values, strict=True))
    )
    return Tape(3, slots, {}, CALLS, watched)


def snapshot_in(folder: Path, plain: float = 1.0) -> Path:
    """A snapshot whose last output, of ones, was recorded as of this value."""
    ports = tuple(Port(name, view) for name, view in OUTPUTS.items())
    snapshot = snapshot_of("sam", tape=tape_of(plain), outputs=ports)
    path = folder / "snapshots" / snapshot.execution.file
    path.parent.mkdir(parents=True)
    write_snapshot(path, snapshot)
    return path


def test_a_draw_goes_into_what_is_computed_of_it() -> None:
    assert outputs_of_own_draws(tape_of(1.0)) == {"output 0", "output 1", "output 2"}


def test_what_draws_other_numbers_cannot_be_compared(tmp_path: Path) -> None:
    path = snapshot_in(tmp_path)
    answer = answer_of(path, "cpu")
    assert answer.holds and not answer.comparable and not answer.comparison.identical
    assert answer.text.startswith("3 of 4 outputs cannot be compared, because the replay draws different numbers")
    assert answer.text.endswith("for the rest: its output is identical, bit for bit")
    done = CliRunner().invoke(program, ["snapshot", "replay", str(path), "--mode", "cpu", "--json", "-"])
    outputs = {one["name"]: one["other_draws"] for one in json.loads(done.stdout)["outputs"]}
    assert (outputs["saved random"], outputs["output 3"]) == (True, False)
    (replayed,) = replay_snapshots(tmp_path, "cpu")
    assert replayed.holds and not replayed.comparable and "cannot be compared" in replayed.text


def test_what_depends_on_no_draw_is_beyond_rounding_as_ever(tmp_path: Path) -> None:
    path = snapshot_in(tmp_path, plain=1.5)
    answer = answer_of(path, "cpu")
    assert not answer.holds and [one.name for one in answer.comparison.beyond] == ["output 3"]
    assert "beyond rounding: output 3" in answer.text
    (replayed,) = replay_snapshots(tmp_path, "cpu")
    assert not replayed.holds
