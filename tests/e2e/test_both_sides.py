"""What an investigation says of modes with kernels, settings and states of their own, whichever side has them.

Each row is a mode that is compared with the first one, with what must come out. Rows of one script are one investigation,
as they share its reference; those that come out otherwise are told together, with what was said of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Numdrift
from ..faults.site import is_planted

SCRIPTS = Path(__file__).parent / "scripts"
BACKWARD = {"phase": "backward", "op": "tanh_backward"}
LATE = BACKWARD | {"step": 9}
ROUNDING, FAULT = "rounding", "beyond-rounding"

NOT_REPEATED = {
    "urandom": ("number", "mul", "os.urandom(4)"),
    "time": ("number", "mul", "time.time_ns()"),
    "generator": ("outside", "lift_fresh", "np.random.default_rng()"),
    "race": ("race", "add_", "added.add_(part)"),
}
"""Of each plant of `unrepeatable.py`: how two trainings come apart, by which op, and what stands in its line."""


@dataclass(frozen=True, slots=True)
class Row:
    """A mode against the reference: the verdict, and the planted fault, which must be the only one that is proven."""

    mode: str
    verdict: str
    culprit: Mapping[str, Any] | None = None

    def complaint(self, pair: Mapping[str, Any]) -> str:
        """What came out otherwise, empty where nothing did."""
        proven = [one for one in pair["culprits"] if one.get("status") == "culprit" and one["significance"] == FAULT]
        named = [
            f"{one['status']} {one['kind']} {one['op']} {one['phase']} {one['step']}"
            for one in pair["culprits"]
            if one["kind"] != "setup"
        ]
        said = f"{self.mode}: {pair['verdict']}, {' '.join(pair['text'])} | culprits {named} | notes {pair['notes']}"
        if pair["verdict"] != self.verdict:
            return f"expected {self.verdict}; {said}"
        if self.verdict == FAULT and any(one["kind"].startswith("compiler") for one in pair["culprits"]):
            return f"the compiler is blamed; {said}"
        if self.culprit is None:
            return ""
        if len(proven) != 1 or not is_planted(proven[0], self.culprit):
            return f"expected {dict(self.culprit)} alone; {said}"
        step = self.culprit.get("step", 0)
        if pair["first_significant_step"] != step:
            return f"expected step {step}, not {pair['first_significant_step']}; {said}"
        return ""


def investigated(
    numdrift: Numdrift, folder: Path, script: str, modes: Iterable[str], *arguments: str
) -> dict[str, Any]:
    """The findings, of which `investigate`'s own options come before `--` and the script's after it."""
    specs = [word for mode in modes for word in ("--mode", mode)]
    asked = ("--name", "i", "--no-scripts", *(() if "--confirm" in arguments else ("--no-confirm",)))
    done = numdrift("investigate", SCRIPTS / script, *specs, *asked, *arguments)
    written = folder / "runs" / "i" / "investigation.json"
    assert written.exists(), f"exit code {done.returncode}: {done.stderr[-2000:]}"
    assert done.stderr.count("Traceback") == 0, done.stderr
    found: dict[str, Any] = json.loads(written.read_text())
    return found


def complaints(found: Mapping[str, Any], rows: Iterable[Row]) -> str:
    told = [row.complaint(pair) for row, pair in zip(rows, found["pairs"], strict=True)]
    return "\n".join(one for one in told if one)


def exhaustive(*values: object) -> Any:
    """A case that only the exhaustive run has."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def not_located(row: Row, pair: Mapping[str, Any]) -> str:
    """What is not as planted about the call that does not repeat, empty where all is."""
    plant = next(part for part in row.mode.split(",") if part.startswith("env.PLANT=")).partition("=")[2]
    first, _, last = row.mode.partition("env.AT=")[2].partition("-")
    found = [one for one in pair["culprits"] if one["kind"] == "nondeterminism"]
    told = [(one["what"], one["op"], one["source"], one["step"]) for one in found]
    what, op, text = NOT_REPEATED[plant]
    if len(found) != 1 or found[0]["what"] != what or found[0]["op"] != f"aten.{op}":
        return f"{row.mode}: expected {what} by {op} alone, not {told}"
    file, _, line = found[0]["source"].rpartition(":")
    if text not in Path(file).read_text().splitlines()[int(line) - 1]:
        return f"{row.mode}: expected the line of {text}, not {told}"
    if not int(first) <= found[0]["step"] <= int(last or first):
        return f"{row.mode}: expected step {first} to {last or first}, not {told}"
    return "" if found[0]["text"] in pair["text"][0] else f"{row.mode}: the sentence lacks it: {pair['text']}"


def of_planted(plant: str, at: str) -> Row:
    return Row(f"{plant}{at}=cpu,env.PLANT={plant},env.AT={at}", "nondeterministic")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "op", "compiled"),
    [
        exhaustive("a=cpu,env.FAULT=tanh_backward", "tanh_backward", True),
        exhaustive("a=cpu,env.FAULT=threshold_backward", "threshold_backward", False),
        exhaustive("a=cpu,kernel.tanh_backward=bf16", "tanh_backward", True),
        ("a=cpu,env.FAULT=tanh_backward,env.FROM=9", "tanh_backward", False),
    ],
)
def test_a_faulty_kernel_of_the_reference_is_found(
    reference: str, op: str, compiled: bool, numdrift: Numdrift, tmp_path: Path
) -> None:
    culprit = {"phase": "backward", "op": op, "step": 9 if "FROM" in reference else 0}
    rows = [Row("b=cpu", FAULT, culprit), *([Row("c=compile", FAULT, culprit)] if compiled else [])]
    found = investigated(numdrift, tmp_path, "own_kernel.py", [reference, *(row.mode for row in rows)])
    assert not (said := complaints(found, rows)), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "at"),
    [
        ("threads", "0"),
        *(exhaustive(setting, "0") for setting in ("denormal", "precision", "deterministic", "onednn")),
        *(exhaustive(setting, "5") for setting in ("threads", "denormal", "precision", "deterministic", "onednn")),
    ],
)
def test_what_a_script_sets_torch_to_is_set_where_its_steps_are_executed_again(
    setting: str, at: str, numdrift: Numdrift, tmp_path: Path
) -> None:
    rows = [
        Row("own=cpu,env.FAULT=tanh_backward", FAULT, BACKWARD),
        Row("late=cpu,env.FAULT=tanh_backward,env.FROM=9", FAULT, LATE),
        Row("form=cpu,kernel.tanh=exp_form", ROUNDING),
    ]
    modes = ["cpu", *(row.mode for row in rows)]
    found = investigated(numdrift, tmp_path, "own_kernel.py", modes, "--", "--setting", setting, "--at", at)
    assert not (said := complaints(found, rows)), said
    notes = [note for pair in found["pairs"] for note in pair["notes"] if "reproduce its own bits" in note]
    assert not notes, notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "compiled"),
    [exhaustive("memory", True), ("rollout", False), exhaustive("rollout-grad", True), exhaustive("replay", False)],
)
def test_what_a_training_made_before_is_no_set_up(
    kind: str, compiled: bool, numdrift: Numdrift, tmp_path: Path
) -> None:
    rows = [
        Row("late=cpu,env.FAULT=kernel", FAULT, LATE),
        Row("ahead=cpu,env.FAULT=forward", FAULT, {"phase": "forward", "op": "tanh", "step": 9}),
        Row("form=cpu,kernel.tanh=exp_form", ROUNDING),
        Row("data=cpu,env.FAULT=data", "different-setup"),
        Row("both=cpu,kernel.tanh=exp_form,env.FAULT=data", "different-setup"),
        *([Row("compile", ROUNDING)] if compiled else []),
    ]
    found = investigated(numdrift, tmp_path, "fed_back.py", ["cpu", *(row.mode for row in rows)], "--", "--kind", kind)
    assert not (said := complaints(found, rows)), said


@pytest.mark.slow
def test_a_training_without_the_culprits_takes_the_numbers_that_the_script_takes(
    numdrift: Numdrift, tmp_path: Path
) -> None:
    rows = [Row("compile", ROUNDING), Row("bf16=cpu,kernel.sigmoid_backward=bf16", FAULT)]
    modes = ["cpu", *(row.mode for row in rows)]
    found = investigated(numdrift, tmp_path, "doubled.py", modes, "--confirm")
    assert not (said := complaints(found, rows)), said
    for pair in found["pairs"]:
        assert pair["without"]["status"] == "complete", pair["without"]


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "op"), [("EPS=1e-3", "native_layer_norm"), exhaustive("SCALE=1.01", "mul")])
def test_a_compiled_mode_of_which_the_model_differs_does_not_blame_the_compiler(
    variable: str, op: str, numdrift: Numdrift, tmp_path: Path
) -> None:
    rows = [Row(f"b=compile,env.{variable}", FAULT)]
    found = investigated(numdrift, tmp_path, "own_kernel.py", ["cpu", rows[0].mode])
    assert not (said := complaints(found, rows)), said
    # the op is named: as the culprit, or as one of those that cannot be told apart in the compiled graph
    first = found["pairs"][0]["culprits"][0]
    assert op in " ".join([first["op"], *first["reasons"]]), first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "planted"),
    [
        ("chosen", {"race": ["15"], "generator": ["8"]}),
        exhaustive("chosen", {"urandom": ["0"], "time": ["19"]}),
        exhaustive("chosen", {"urandom": ["9", "12-14"], "race": ["1"], "time": ["5"], "generator": ["6-9"]}),
        exhaustive(
            "0,8,19",
            {"urandom": ["0", "9", "12-14"], "race": ["1", "15"], "time": ["5", "19"], "generator": ["8", "6-9"]},
        ),
    ],
    ids=["late and between", "first and last", "other places", "asked for"],
)
def test_what_is_not_repeated_is_nondeterministic_at_whichever_step(
    steps: str, planted: dict[str, list[str]], numdrift: Numdrift, tmp_path: Path
) -> None:
    rows = [of_planted(plant, at) for plant, steps_of_it in planted.items() for at in steps_of_it]
    given = () if steps == "chosen" else ("--steps", steps)
    found = investigated(numdrift, tmp_path, "unrepeatable.py", ["cpu", *(row.mode for row in rows)], *given)
    assert not (said := complaints(found, rows)), said
    located = [not_located(row, pair) for row, pair in zip(rows, found["pairs"], strict=True)]
    assert not any(located), "\n".join(located)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "at"),
    [
        exhaustive("urandom", "0"),
        ("race", "9"),
        exhaustive("time", "8"),
        exhaustive("generator", "5"),
        exhaustive("race", "19"),
        exhaustive("urandom", "6-9"),
    ],
)
def test_a_reference_that_is_not_repeated_is_nondeterministic(
    plant: str, at: str, numdrift: Numdrift, tmp_path: Path
) -> None:
    reference, rows = of_planted(plant, at), [Row("b=cpu", "nondeterministic")]
    found = investigated(numdrift, tmp_path, "unrepeatable.py", [reference.mode, rows[0].mode])
    assert not (said := complaints(found, rows)), said
    assert not (said := not_located(reference, found["pairs"][0])), said


@pytest.mark.slow
@pytest.mark.parametrize(
    "modes",
    [
        {"module": "cpu", "python": "compile"},
        exhaustive({"less": "cpu", "seed": "cpu"}),
        exhaustive({"module": "compile", "python": "cpu", "less": "compile", "seed": "compile"}),
        exhaustive({"loop": "cpu", "again": "cpu"}),
    ],
    ids=["some", "more", "others", "in the loop"],
)
def test_a_draw_that_one_mode_makes_alone_is_named_by_its_line(
    modes: dict[str, str], numdrift: Numdrift, tmp_path: Path
) -> None:
    rows = [Row(f"{draw}={mode},env.DRAW={draw}", "different-setup") for draw, mode in modes.items()]
    found = investigated(numdrift, tmp_path, "drawing.py", ["cpu", *(row.mode for row in rows)])
    assert not (said := complaints(found, rows)), said
    lines = (SCRIPTS / "drawing.py").read_text().splitlines()
    for draw, pair in zip(modes, found["pairs"], strict=True):
        seen = [one for one in pair["culprits"] if one["kind"] == "setup" and "proof" not in one]
        [drawn] = (one for one in seen if one.get("source"))
        assert lines[int(drawn["source"].rpartition(":")[2]) - 1].endswith(f"# draws: {draw}"), drawn
        assert drawn["text"] in pair["text"], pair["text"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("average", "chosen"),
        *(exhaustive(kind, "chosen") for kind in ("ema", "plateau", "curriculum", "patience")),
        *(exhaustive(kind, "0,6,9") for kind in ("average", "ema", "plateau", "curriculum", "patience")),
    ],
)
def test_a_state_of_the_scripts_own_is_no_nondeterminism(
    kind: str, steps: str, numdrift: Numdrift, tmp_path: Path
) -> None:
    rows = [
        Row("same=cpu", "identical"),
        Row("form=cpu,kernel.tanh=exp_form", ROUNDING),
        Row("late=cpu,env.FAULT=kernel", FAULT, LATE),
        *([Row("compile", ROUNDING)] if kind == "ema" and steps == "chosen" else []),
    ]
    given = () if steps == "chosen" else ("--steps", steps)
    modes = ["cpu", *(row.mode for row in rows)]
    found = investigated(numdrift, tmp_path, "bookkeeping.py", modes, *given, "--", "--kind", kind)
    assert not (said := complaints(found, rows)), said
