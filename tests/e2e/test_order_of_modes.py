"""Two modes in the other order: the sides change places in the findings, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Numdrift

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Modes:
    """Two modes of a script. The sides of an op are compared where its step is the first: both orders begin that one in
    the same state, later ones in that of their reference."""

    name: str
    script: str
    one: str
    other: str
    arguments: Sequence[str] = ()
    exhaustive: bool = True
    differs: str = ""
    """Why the two orders say other things."""


PLAIN = "plain=cpu"
HIDDEN = (
    "the noise of a lazy reference that rounds to bfloat16 hides each step: the same cause is found, in the last one"
)
CASES = (
    Modes("kernel", "own_kernel", PLAIN, "bf16=cpu,kernel.tanh_backward=bf16", exhaustive=False),
    Modes("argument", "own_kernel", PLAIN, "eps=cpu,env.EPS=1e-3"),
    Modes("rounding", "own_kernel", PLAIN, "exp=cpu,kernel.tanh=exp_form"),
    Modes("setup", "kinds", PLAIN, "lr=cpu,env.FAULT=lr"),
    Modes("nondeterministic", "unrepeatable", PLAIN, "drawn=cpu,env.PLANT=urandom,env.AT=8"),
    Modes("identical", "own_kernel", PLAIN, "same=cpu"),
    Modes("own-kernel", "own_kernel", PLAIN, "own=cpu,env.FAULT=tanh_backward"),
    Modes("own-kernel-late", "own_kernel", PLAIN, "own=cpu,env.FAULT=tanh_backward,env.FROM=9"),
    Modes("both-swapped", "own_kernel", "exp=cpu,kernel.tanh=exp_form", "bf16=cpu,kernel.tanh_backward=bf16"),
    Modes("two-faults", "own_kernel", PLAIN, "two=cpu,kernel.tanh=bf16,kernel.native_layer_norm_backward=bf16"),
    Modes("product", "own_kernel", PLAIN, "bf16=cpu,kernel.addmm=bf16"),
    Modes("optimizer", "own_kernel", PLAIN, "bf16=cpu,kernel._foreach_addcdiv=bf16"),
    Modes("scale", "own_kernel", PLAIN, "scaled=cpu,env.SCALE=1.01"),
    Modes("structure", "kinds", PLAIN, "more=cpu,env.FAULT=loss"),
    Modes("memory", "fed_back", PLAIN, "own=cpu,env.FAULT=kernel"),
    Modes("initial", "kinds", PLAIN, "init=cpu,env.FAULT=init"),
    Modes("batch", "kinds", PLAIN, "batch=cpu,env.FAULT=batch"),
    Modes("generator", "kinds", PLAIN, "drawn=cpu,env.FAULT=python", ("--kind", "generators")),
    Modes("nonfinite", "kinds", PLAIN, "nan=cpu,env.FAULT=nan"),
    Modes("failed", "kinds", PLAIN, "crash=cpu,env.FAULT=crash"),
    Modes("compile", "own_kernel", PLAIN, "compile"),
    Modes("lazy", "own_kernel", PLAIN, "slow=lazy,kernel.tanh_backward=bf16", differs=HIDDEN),
)


def marks_of(modes: Modes) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.exhaustive] if modes.exhaustive else []
    return [*found, pytest.mark.xfail(reason=modes.differs, strict=True)] if modes.differs else found


@pytest.mark.slow
@pytest.mark.parametrize("modes", [pytest.param(one, marks=marks_of(one), id=one.name) for one in CASES])
def test_the_other_order_says_the_same_of_each_mode(modes: Modes, numdrift: Numdrift, tmp_path: Path) -> None:
    said = []
    for name, pair in (("one", (modes.one, modes.other)), ("other", (modes.other, modes.one))):
        asked = (*("--mode", pair[0], "--mode", pair[1]), *("--name", name, "--no-scripts", "--no-confirm"))
        numdrift("investigate", SCRIPTS / f"{modes.script}.py", *asked, "--", *modes.arguments)
        found = json.loads((tmp_path / "runs" / name / "investigation.json").read_text())["pairs"][0]
        said.append(by_mode(found))
    one, other = said
    if "=lazy" in modes.other:  # of a lazy reference one step is executed in double, of which nobody can say that
        del one["closer_to_fp64"]
    differing = [f"{key}: {one[key]}\n  {other[key]}" for key in one if one[key] != other[key]]
    assert not differing, "\n".join(differing)


def by_mode(pair: Mapping[str, Any]) -> dict[str, Any]:
    """What a pair says, with the names of the modes in place of its sides, less what is measured in other states."""
    labels = {"a": pair["a"], "b": pair["b"]}

    def named(sides: Mapping[str, Any]) -> dict[str, Any]:
        return {labels[side]: value for side, value in sides.items()}

    culprits = []
    for one in pair["culprits"]:
        if "proof" not in one:  # it was seen: another set-up, or a call that does not repeat
            culprits.append({"what": one["what"], "name": one["name"], "step": one["step"], "op": one["op"]})
            continue
        holding = {"a": one["proof"]["swap_in"]["holds"], "b": one["proof"]["swap_out"]["holds"]}
        # An op that is given other arguments, or is not there at all, has no other side whose errors would be the same's.
        judged = one["kind"] == "kernel" and one["significance"] == "beyond-rounding"
        wrong = max(one["error_ulp"], key=one["error_ulp"].__getitem__) if judged else None
        culprits.append(
            {key: one[key] for key in ("status", "kind", "phase", "module", "op", "step", "significance", "sites")}
            | {"places": sorted(one["places"]), "kernel": named(one.get("kernel") or {}), "ops": named(one["ops"])}
            | {"the proof holds in the step of": named(holding)}
            | {"is farther from double": labels[wrong] if wrong else None}
        )
    # The referee executes the reference's ops, and no step is started from a reference that does not repeat itself.
    drifted = pair["verdict"] in ("rounding", "beyond-rounding")
    same_ops = drifted and all(one.get("kind") in ("kernel", None) for one in culprits)
    return {
        "modes": sorted(labels.values()),
        **{key: pair[key] for key in ("verdict", "first_differing_step", "inspect")},
        "first_significant_step": pair["first_significant_step"] if drifted else None,
        "closer_to_fp64": pair["closer_to_fp64"] if same_ops else None,
        "repeats": {label: one["repeatable"] for label, one in sorted(pair["controls"].items())},
        "steps": [one["step"] for one in pair["steps"]] if drifted else [],
        "culprits": sorted(culprits, key=lambda one: json.dumps(one, sort_keys=True)),
    }
