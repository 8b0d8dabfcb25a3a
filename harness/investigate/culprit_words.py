"""Culprits in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..tape.summing import sums

MOST_PLACES = 4
PHASES = {
    "data": "the data",
    "forward": "the forward",
    "backward": "the backward",
    "optimizer": "the optimizer",
    "setup": "the set-up",
}


def lines_of(culprit: Mapping[str, Any], a: str, b: str) -> list[str]:
    """What it is and where, how large its own error is, what its proof says, and what shows it: a line each."""
    share = culprit.get("share_of_drift")
    of_drift = "" if share is None else f" ({100 * share:.0f} % of the drift)"
    lines = [
        _what(culprit) + of_drift,
        ", ".join(culprit["reasons"]),
        _errors(culprit, a, b),
        _bound(culprit, a, b),
        _proof(culprit, a, b),
        _script(culprit),
    ]
    return [line for line in lines if line]


def _what(culprit: Mapping[str, Any]) -> str:
    op = culprit["op"] or culprit.get("name") or "the inputs of the step"
    source = f", {_from_here(culprit['source'])}" if culprit.get("source") else ""
    status = "" if culprit["status"] == "culprit" else "suspect: "
    return f"{status}{op} in {PHASES.get(culprit['phase'], culprit['phase'])}{_where(culprit)}{source}"


def _where(culprit: Mapping[str, Any]) -> str:
    places = [place or "the model itself" for place in culprit.get("places", ())]
    if not places:
        return ""
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    return f" of {', '.join(places[:MOST_PLACES])}{more}"


def _errors(culprit: Mapping[str, Any], a: str, b: str) -> str:
    ulp, rho = culprit["error_ulp"], culprit["rho"]
    if culprit["kind"] != "kernel" or not {"a", "b"} <= ulp.keys():
        return ""
    local = culprit["local_significance"]
    said = (
        "more than rounding of its inputs explains"
        if local == "beyond-rounding"
        else "as rounding of its inputs"
    )
    return f"{ulp['a']:.3g} ULP from double in {a}, {ulp['b']:.3g} in {b} (rho {rho['a']:.2g} and {rho['b']:.2g}: {said})"


def _bound(culprit: Mapping[str, Any], a: str, b: str) -> str:
    """Which side errs by more than a correct kernel of its precision can; nothing where neither does."""
    ratios = culprit.get("bound") or {}
    beyond = [
        f"in {label} {float(ratios[side]):.3g}"
        for side, label in (("a", a), ("b", b))
        if ratios.get(side) is not None and float(ratios[side]) > 1
    ]
    if culprit["kind"] != "kernel" or not beyond:
        return ""
    name = culprit["op"].partition(".")[2]
    correct = "any order of summation" if sums(name) else "correctly rounded steps"
    return f"{' and '.join(beyond)} times what {correct} in its precision can err"


def _proof(culprit: Mapping[str, Any], a: str, b: str) -> str:
    proof = culprit["proof"]
    if culprit["kind"] == "part" or culprit["kind"].startswith("compiler-"):
        return str(proof["why"])
    if culprit["kind"] == "mark-step":
        policy = culprit["policy"]
        swapped = policy["swapped"] if " " in policy["swapped"] else f"mark_step={policy['swapped']}"
        before, after = _z(proof["swap_in"]["score_after"]), _z(proof["swap_out"]["score_after"])
        return (
            f"against the same ops one by one: z {before} with mark_step={policy[b]}, {after} with {swapped}"
        )
    came, went = proof["swap_in"], proof["swap_out"]
    said = []
    if came["score_after"] is not None:
        said.append(
            f"swapped into {a} the drift {'comes' if came['holds'] else 'does not come'} (z {_z(came['score_after'])})"
        )
    if went["score_after"] is not None:
        alone = f"z {_z(went['score_before'])} to {_z(went['score_after'])}"
        said.append(f"swapped out of {b} it goes from {alone}")
    if proof.get("together_with"):
        said.append(f"it acts only together with {proof['together_with']} of the others")
    if proof.get("why"):
        said.append(str(proof["why"]))
    return ", ".join(said)


def _script(culprit: Mapping[str, Any]) -> str:
    """The script that shows it, by its path from the current folder."""
    script = culprit.get("script") or {}
    if not script.get("reproduces"):
        return ""
    return f"{_from_here(script['path'])} shows it without numdrift"


def _from_here(path: str) -> str:
    """A path as it is from the current folder, if it lies there."""
    full, here = Path(path).absolute(), Path.cwd()
    return str(full.relative_to(here) if full.is_relative_to(here) else path)


def _z(score: Any) -> str:
    return score if isinstance(score, str) else f"{score:.3g}"
