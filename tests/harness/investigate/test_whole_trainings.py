from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numdrift.harness.investigate.questions.question import proven
from numdrift.harness.investigate.questions.whole_trainings import farther_away, remedy, trained_without
from numdrift.harness.records.codec import json_text, read
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.run.run_config import RunConfig

PROOF = {"swap_in": {"holds": True}, "swap_out": {"holds": True}}


def kernel(a: list[str], b: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "op": f"aten.{a[0]}", "ops": {"a": a, "b": a if b is None else b}, **more}


@pytest.mark.parametrize(
    ("a", "b", "culprits", "expected", "left"),
    [
        ("cpu", "lazy,kernel.mm=bf16", [kernel(["mm"])], "lazy", ()),
        (
            "cpu",
            "lazy,kernel.mm@net.1:0=bf16,kernel.sum=kahan",
            [kernel(["mm"])],
            "lazy,kernel.sum=kahan",
            (),
        ),
        ("cpu,kernel.mm=fp64", "lazy", [kernel(["mm"])], "lazy,kernel.mm=fp64", ()),
        (
            "cpu",
            "compile",
            [kernel(["tanh_backward"], ["mul", "sub"])],
            "compile,kernel.tanh_backward=aten",
            (),
        ),
        # a compiled backward that goes with its forward is taken out with it
        (
            "cpu",
            "compile",
            [kernel(["gelu"], ["mul", "erf"], beside=["gelu_backward"]), kernel(["sum"])],
            "compile,kernel.gelu=aten,kernel.gelu_backward=aten,kernel.sum=aten",
            (),
        ),
        # what a culprit was decomposed into takes no swap away that stands there for its own sake, unless it is that
        (
            "cpu",
            "compile,kernel.exp=aten,kernel.mul=aten",
            [kernel(["gelu_backward"], ["mul", "exp"], kernel={"a": "aten", "b": "decomposed"})],
            "compile,kernel.exp=aten,kernel.mul=aten,kernel.gelu_backward=aten",
            (),
        ),
        (
            "cpu",
            "lazy,kernel.exp=bf16,kernel.mul=kahan",
            [kernel(["gelu"], ["exp", "mul"], kernel={"a": "aten", "b": "bf16"})],
            "lazy,kernel.mul=kahan",
            (),
        ),
        ("cpu", "compile,kernel.mm=bf16", [kernel(["mm"])], "compile,kernel.mm=aten", ()),
        (
            "cpu",
            "compile",
            [kernel(["sum"]), kernel(["tanh"])],
            "compile,kernel.sum=aten,kernel.tanh=aten",
            (),
        ),
        ("cpu", "other=cpu,env.X=1", [kernel(["mm"])], "other=cpu,env.X=1", ("aten.mm",)),
        ("cpu", "lazy", [{"kind": "structure", "op": "aten.pow"}], "lazy", ("aten.pow",)),
        (
            "cpu",
            "lazy,mark_step=step",
            [{"kind": "mark-step", "op": None, "swapped": "mark_step=phase"}],
            "lazy,mark_step=phase",
            (),
        ),
        ("cpu", "lazy", [{"kind": "mark-step", "op": "aten.lerp", "swapped": None}], "lazy", ("aten.lerp",)),
    ],
)
def test_the_mode_without_its_culprits(
    a: str, b: str, culprits: list[dict[str, Any]], expected: str, left: tuple[str, ...]
) -> None:
    found = remedy(parse_mode(a), parse_mode(b), read(list[Culprit], culprits))
    assert str(found.spec) == expected
    assert found.left == left
    assert bool(found.swaps) == (expected != b)


def test_what_is_beyond_rounding_must_go_and_of_rounding_everything() -> None:
    told = [
        kernel(["mm"], status="culprit", significance="beyond-rounding", proof=PROOF),
        kernel(["sum"], status="culprit", significance="rounding", proof=PROOF),
        kernel(["tanh"], status="suspect", significance="beyond-rounding", proof=PROOF),
        {"kind": "setup", "status": "culprit", "significance": "beyond-rounding"},
    ]
    culprits = read(list[Culprit], told)
    assert proven("beyond-rounding", culprits) == culprits[:1]
    assert proven("rounding", culprits) == culprits[:2]


def compared(relative: float | None, differing: int = 0, steps: int = 6) -> Any:
    drifts = [SimpleNamespace(differing=number < differing) for number in range(8)]
    losses, parameters = SimpleNamespace(max_relative=relative), SimpleNamespace(drifts=drifts)
    return SimpleNamespace(losses=losses, parameters=parameters, common_steps=steps)


@pytest.mark.parametrize(
    ("without", "whole", "said"),
    [
        (compared(2e-7), compared(0.0), "its losses differ by up to 2e-07 of their value, those of compile by 0"),
        (compared(0.0, 7), compared(0.0, 3), "7 of its parameters and buffers differ, and 3 of those of compile"),
        (compared(1e-7, 7), compared(2e-7, 3), ""),
        (compared(1e-7, 7), compared(1e-7, 7), ""),
        (compared(2e-7), compared(1e-7, steps=9), ""),  # one of them did not get as far
    ],
)
def test_a_training_that_ends_farther_away_without_the_culprits_says_nothing_of_them(
    without: Any, whole: Any, said: str
) -> None:
    text = farther_away(without, whole, "compile")
    assert bool(text) == bool(said)
    assert said in text and (not said or "neither confirms nor refutes" in text)


@pytest.mark.parametrize(
    ("culprits", "said"),
    [
        ([{"kind": "setup", "op": None}], "there is no kernel to swap: the data itself differs"),
        ([{"kind": "arguments", "op": "aten.fill_"}, {"kind": "setup"}], "no setting of a mode replaces aten.fill_"),
    ],
)
def test_why_the_mode_is_not_trained_without_them(culprits: list[dict[str, Any]], said: str, tmp_path: Path) -> None:
    config = RunConfig("train.py", parse_mode("b=cpu,env.X=1"), str(tmp_path / "journal"))
    (tmp_path / "config.json").write_text(json_text(config), encoding="utf-8")
    run = SimpleNamespace(path=tmp_path)
    evidence: Any = SimpleNamespace(a=run, b=run, only=lambda side, kind: None)
    more = {"status": "culprit", "significance": "beyond-rounding", "proof": PROOF, "ops": {"a": [], "b": []}}
    made = trained_without(evidence, "beyond-rounding", [read(Culprit, {**more, **one}) for one in culprits])
    assert made is not None and made.text == f"the mode was not trained to the end without its culprits: {said}"
