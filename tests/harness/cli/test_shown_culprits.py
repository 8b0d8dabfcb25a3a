"""What a command prints of the causes of a pair: a table under `rounding`, suspects on request, what is left."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from numdrift.harness.cli.shown_culprits import show_culprits
from numdrift.harness.investigate.words.culprit_words import lines_of, title_of
from numdrift.harness.records.results.culprit import Culprit, CulpritScript, Proof, SwappedIn, SwappedOut
from numdrift.harness.records.results.findings import PairFindings

PROVEN = Culprit(
    kind="kernel",
    status="culprit",
    phase="backward",
    op="aten.sum",
    places=["layers.4", "layers.2"],
    source="train.py:7",
    significance="rounding",
    kernel={"a": "aten", "b": "inductor"},
    error_ulp={"a": 152.0, "b": 1100.0},
    rho={"a": 0.7, "b": 3.9},
    share_of_drift=0.98,
    proof=Proof(SwappedIn(True, 0.0, 1.77), SwappedOut(True, 1.77, 0.26, 0.0)),
    script=CulpritScript("runs/x/culprit-1.py", reproduces=True),
)
ARGUMENT = replace(
    PROVEN, kind="arguments", op="aten.mul", reasons=("0.5 against 0.52",), share_of_drift=0.02, script=None
)
NEVER_EXECUTED = replace(ARGUMENT, op="aten.mm", status="suspect", proof=Proof(SwappedIn(), SwappedOut(), why="no way"))
HALF = replace(NEVER_EXECUTED, op="aten.add", proof=Proof(SwappedIn(True, 0.0, 40.0), SwappedOut()))


def printed(
    verdict: str, *culprits: Culprit, width: int = 200, suspects: bool = False, frames: bool = False, **more: object
) -> str:
    pair = PairFindings("cpu", "compile", verdict, (), culprits=culprits, **more)  # type: ignore[arg-type]
    out = io.StringIO()
    show_culprits(Console(file=out, width=width, markup=False, highlight=False), pair, suspects=suspects, frames=frames)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 200])
def test_contributors_of_rounding_are_a_short_table(width: int) -> None:
    lines = printed("rounding", PROVEN, ARGUMENT, explained=1.0, width=width).splitlines()

    while lines[0].split()[:4] != ["op", "phase", "places", "share"]:
        lines.pop(0)  # the names of the modes, broken into lines
    assert lines[1].split() == ["1.", "aten.sum", "backward", "layers.4,", "layers.2", "98", "%", "152", "1.1e+03"]
    assert lines[2].split()[:3] == ["2.", "aten.mul", "backward"]
    assert lines[3:] == [
        "  2: 0.5 against 0.52",
        "  culprit-1.py in runs/x shows it without numdrift",
        "  the drift disappears completely when all culprits are swapped out together",
    ]


def test_in_a_narrow_terminal_places_are_broken_and_nothing_is_cut_off() -> None:
    many = replace(PROVEN, op="aten.tanh_backward", places=["blocks.0.attention", "blocks.1.attention"])

    lines = printed("rounding", many, width=80).splitlines()

    row = next(line for line in lines if "1." in line)
    assert max(map(len, lines[:4])) <= 80
    assert "aten.tanh_backward" in row and row.rstrip().endswith("1.1e+03")
    assert "blocks.1" in " ".join(lines)


def test_suspects_of_rounding_are_counted_and_listed_on_request() -> None:
    counted = printed("rounding", PROVEN, NEVER_EXECUTED, HALF)
    listed = printed("rounding", PROVEN, NEVER_EXECUTED, HALF, suspects=True)

    assert "mm" not in counted and "add" not in counted
    assert "2 suspects have no proof; --suspects lists them" in counted
    assert "  2. suspect: aten.mm in the backward" in listed and "  3. suspect: aten.add" in listed


def test_a_suspect_of_a_fault_is_named_where_half_of_its_proof_holds() -> None:
    said = printed("beyond-rounding", replace(PROVEN, significance="beyond-rounding"), HALF, NEVER_EXECUTED)

    assert "  1. aten.sum in the backward of layers.4, layers.2" in said
    assert "  2. suspect: aten.add" in said and "aten.mm" not in said
    assert "1 suspect has no proof; --suspects lists it" in said


def test_what_is_left_stands_after_the_causes() -> None:
    said = printed(
        "rounding", PROVEN, explained=0.83, unexplained="the causes explain 83 % of the drift of step 3; ..."
    )

    assert said.endswith("  the causes explain 83 % of the drift of step 3; ...\n")
    assert "all of the drift" not in said
    assert printed("rounding", unexplained="no cause was looked for") == "  no cause was looked for\n"


def test_what_is_rounding_beside_a_fault_is_named_in_a_line() -> None:
    fault = replace(PROVEN, op="aten.tanh", significance="beyond-rounding")
    small = replace(PROVEN, share_of_drift=0.004)

    said = printed("beyond-rounding", fault, small, small, ARGUMENT)

    assert "  1. aten.tanh in the backward" in said and "  2. " not in said
    assert "  also proven, but within rounding: aten.sum (1 %), aten.mul (2 %)\n" in said
    # and without a share if it was swapped together with others
    said = printed("beyond-rounding", fault, replace(small, share_of_drift=None), ARGUMENT)
    assert "  also proven, but within rounding: aten.sum, aten.mul (2 %)\n" in said


def test_many_are_cut_off_with_a_word() -> None:
    assert "and 2 more in investigation.json" in printed("beyond-rounding", *[PROVEN] * 10)


def test_the_compiler_is_the_context_of_the_op_that_it_changed() -> None:
    assert "by torch.compile's code generation" in lines_of(PROVEN, "cpu", "compile")
    assert not any("compile's" in line for line in lines_of(replace(ARGUMENT, kernel=None), "cpu", "b"))


def test_a_forward_and_its_backward_are_named_both() -> None:
    both = replace(ARGUMENT, phase="forward", phases=["forward", "backward"])

    assert title_of(both) == "aten.mul in the forward and the backward of layers.4, layers.2, train.py:7"


@pytest.mark.parametrize("verdict", ["rounding", "beyond-rounding"])
def test_the_users_frames_are_printed_on_request(verdict: str) -> None:
    reached = replace(PROVEN, source="/m/model.py:7", frames=("/m/model.py:7 Net.forward", "/m/train.py:31 <module>"))
    line = "/m/model.py:7 (Net.forward) <- /m/train.py:31"
    assert line in printed(verdict, reached, frames=True)
    # in the title of a culprit it stands by itself, in the table of contributors it does not
    assert (line in printed(verdict, reached)) == (verdict != "rounding")


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (SwappedOut(True, 0.44, 0.04, 0.0), "when it is swapped out of compile, z goes from 0.44 to 0.04"),
        # of several causes whose errors partly undo one another, one alone takes nothing away
        (
            SwappedOut(True, 0.44, 0.56, 0.0),
            (
                "when only it is swapped out of compile, the drift stays (z 0.44 to 0.56); together with the other causes, "
                "z goes to 0"
            ),
        ),
    ],
)
def test_a_cause_that_goes_only_with_others_is_told_as_that(out: SwappedOut, said: str) -> None:
    lines = lines_of(replace(PROVEN, proof=Proof(SwappedIn(True, 0.0, 0.5), out)), "cpu", "compile")
    assert f"when it is swapped into cpu, the drift appears (z 0.5); {said}" in lines
