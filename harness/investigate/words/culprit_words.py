"""Descriptions of culprits in words.

aten.tanh_backward in the backward of 1, train.py:31 (100 % of the drift)
0.9 ULP from double in cpu, 312 in lazy (rho 0.4 and 130: more than rounding of its inputs explains)
when it is swapped into cpu, the drift appears (z 90); when it is swapped out of lazy, z goes from 91 to 0
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from ...records.modes.mode_spec import INDUCTOR
from ...records.results.culprit import (
    KERNEL,
    LAYOUT,
    MARK_STEP,
    STRUCTURE,
    Culprit,
    Proof,
)
from ...records.run.interpreters import MODE, VERSION
from ...tape.op_names import sums
from ...tape.origin import line_of

REVISION = re.compile(r".*/numdrift/revisions/[^/]+/([0-9a-f]{40})/(.+)")
"""The path of a file in a revision that is checked out (see `launch.revisions`)."""

MOST_PLACES = 4
MOST_NAMED = 3

OR_MODE = "may differ because of the version or the mode"
DIFFERS = {VERSION: "differs because of the version", MODE: "differs because of the mode, not the version"}
"""The phrase for a culprit in two versions of torch, by the cause of the difference: the version or the mode."""

LOCAL_FAULT = 16.0
"""The rho above which an error is mentioned, as in `localize.causes.judged_alone`."""

MANY = 1e12
"""A ratio of this size or more prints as "many times": its denominator is next to nothing."""
PHASES = {
    "data": "the data",
    "forward": "the forward",
    "backward": "the backward",
    "optimizer": "the optimizer",
    "setup": "the set-up",
}


def lines_of(culprit: Culprit, a: str, b: str) -> list[str]:
    """Return one line each for the culprit's name and place, the size of its own error, the result of its proof, and
    the script that shows it.

    A difference in the set-up has no proof, and is described by its own text.
    """
    if culprit.proof is None:
        return [culprit.text or ""]
    share = culprit.share_of_drift
    of_drift = "" if share is None else f" ({100 * share:.0f} % of the drift)"
    status = "" if culprit.status == "culprit" else "suspect: "
    script, shown = culprit.script, ""
    if script is not None and script.path is not None and script.reproduces:
        shown = f"{from_here(script.path)} shows it without numdrift"
    lines = [
        f"{status}{title_of(culprit)}{of_drift}",
        f"makes {in_words(culprit.batch)} differ: {culprit.text}"
        if culprit.batch
        else ("; " if culprit.layouts else ", ").join([*culprit.reasons, *_compiled(culprit)]),
        wrong_by_itself(culprit, a, b) if culprit.local_rule in ("choice", "values", "bias", "once") else "",
        _errors(culprit, a, b),
        _bound(culprit, a, b),
        versions_of(culprit),
        _proof(culprit, culprit.proof, a, b),
        shown,
    ]
    return [line for line in lines if line]


def named_culprits(
    verdict: str | None, culprits: Sequence[Culprit], *, suspects: bool = False
) -> tuple[list[Culprit], int]:
    """Return the culprits to name, and the count of the others.

    Proven culprits are named. A suspect is named if an experiment supports it: half of its proof holds, and the verdict
    is not `rounding`. With `suspects`, all suspects are named. Differences in the set-up are left out: the verdict
    reports them.
    """
    named, counted = list[Culprit](), 0
    for culprit in culprits:
        if culprit.proof is None:
            continue
        supported = verdict != "rounding" and (culprit.proof.swap_in.holds or culprit.proof.swap_out.holds)
        if suspects or culprit.is_proven or supported:
            named.append(culprit)
        else:
            counted += 1
    return named, counted


def named_places(culprit: Culprit) -> str:
    places = list(dict.fromkeys(place or "the model itself" for place in culprit.places))
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    return ", ".join(places[:MOST_PLACES]) + more


def name_of(culprit: Culprit) -> str:
    """Return the name of a culprit: an op, a setting as a mode states it, or a way in which a mode executes a step."""
    if culprit.setting is not None:
        return f"{culprit.setting.name}={culprit.setting.values.get('b', '')}"
    return culprit.op or culprit.name or "the inputs of the step"


def title_of(culprit: Culprit) -> str:
    """Return the name of a culprit and its place."""
    op = name_of(culprit)
    where = f" of {named_places(culprit)}" if culprit.places else ""
    source = f", {_called_from(culprit)}" if culprit.source else ""
    phases = culprit.phases or (culprit.phase or "",)
    return f"{op} in {' and '.join(PHASES.get(phase, phase) for phase in phases)}{where}{source}"


def _called_from(culprit: Culprit) -> str:
    """Return the line of the call.

    If that line is not in the script itself, the function that contains it and the script's line are added:

        model.py:28 (Block.forward) <- train.py:300
    """
    lines = [line_of(frame) for frame in culprit.frames]
    files = [line.rpartition(":")[0] for line in lines]
    if not lines or files[0] == files[-1]:
        return from_here(culprit.source or "")
    # The outermost frame is in the script that was started.
    return f"{_frame(culprit.frames[0])} <- {from_here(lines[files.index(files[-1])])}"


def frames_of(culprit: Culprit) -> str:
    """Return all frames of the user's code, the innermost first."""
    return " <- ".join(_frame(frame) for frame in culprit.frames)


def _frame(frame: str) -> str:
    line, function = line_of(frame), frame.rpartition(" ")[2]
    return f"{from_here(line)} ({function})" if line != frame and function != "<module>" else from_here(line)


def in_words(names: Sequence[str]) -> str:
    """Name the values that differ at the beginning of a step, or the differing arguments of its model."""
    arguments = [name for name in names if name.startswith("argument ")]
    others = [name.partition(" ")[2] for name in names if name not in arguments]
    more = f"{', '.join(others[:MOST_PLACES])} and {len(others) - MOST_PLACES} more"
    described = [f"{' and '.join(arguments)} of the model's call"] if arguments else []
    return " and ".join([*described, *([more] if len(others) > MOST_PLACES else others)])


def wrong_by_itself(culprit: Culprit, a: str, b: str) -> str:
    """Describe, with numbers, the rule by which a cause is more than rounding, whatever the rest of its step does."""
    sides = {"a": a, "b": b}
    worse = max(culprit.rho, key=lambda side: culprit.rho[side], default="b")
    match culprit.local_rule:
        case "generator":
            return "draws different random numbers, because its generator is in a different state"
        case "choice":
            return "computes different results from equal inputs, where all correct kernels agree"
        case "values" if not culprit.roundings:
            return "moves values by more than their rounding"
        case "values" if culprit.roundings == math.inf:
            return f"computes different whole numbers in {culprit.largest_relative:.2%} of the places"
        case "values":
            moved = f"{culprit.largest_relative:.2g} of their size"
            return f"moves values by up to {culprit.roundings:.3g} times their own rounding ({moved})"
        case "error":
            return f"errs in {sides[worse]} by {culprit.rho[worse]:.3g} times what rounding of its inputs causes"
        case "bound":
            side = max(culprit.bound, key=lambda key: culprit.bound[key] or 0.0)
            times = _times(culprit.bound[side])
            return f"errs in {sides[side]} {times} as much as a correct kernel of its precision can"
        case "once":
            side = max(culprit.error_ulp, key=lambda key: culprit.error_ulp[key])
            units = f"{culprit.error_ulp[side]:.3g} units in the last place"
            correct = "where a correct kernel computes in float32 and rounds each element once"
            return f"errs in {sides[side]} by up to {units}, {correct}"
        case "bias":
            lean = abs(culprit.bias[worse])
            return (
                f"errs to one side in {sides[worse]}, by {lean:.3g} standard errors, while rounding errs to both sides"
            )
    return ""


def ill_conditioned_here(causes: Sequence[Culprit], score: float) -> str:
    """Describe a step whose whole drift comes from ill-conditioned ops: with rounded inputs, every kernel of such an op
    errs as much."""
    names = " and ".join(title_of(cause) for cause in causes[:2])
    more = f" and {len(causes) - 2} others" if len(causes) > 2 else ""
    rho = max(value for cause in causes for value in cause.rho.values())
    err, its, it = ("errs", "its", "it") if len(causes) == 1 else ("err", "their", "them")
    return (
        f"ill-conditioned here: all of the drift comes from {names}{more}, which {err} by {rho:.2g} times what "
        f"rounding of {its} inputs causes, whatever kernel computes {it}; the step turns that into {score:.3g} times "
        "its noise"
    )


def _compiled(culprit: Culprit) -> list[str]:
    """Name the part of the compiler that replaced the kernel."""
    made = (culprit.kernel or {}).get("b")
    return ["by torch.compile's code generation"] if made == INDUCTOR else []


def _errors(culprit: Culprit, a: str, b: str) -> str:
    ulp, rho = culprit.error_ulp, culprit.rho
    # The error is only stated for a kernel: nothing else has the same inputs on both sides.
    if not culprit.is_of_kernel or not {"a", "b"} <= ulp.keys():
        return ""
    explanation = "like rounding of its inputs"
    if culprit.local_significance == "beyond-rounding":
        explanation = "more than rounding of its inputs explains"
    elif culprit.kind == LAYOUT and max(rho.values()) > LOCAL_FAULT:
        explanation = "as in sums whose terms are added one by one"
    errors = f"{ulp['a']:.3g} ULP from double in {a}, {ulp['b']:.3g} in {b}"
    return f"{errors} (rho {rho['a']:.2g} and {rho['b']:.2g}: {explanation})"


def _bound(culprit: Culprit, a: str, b: str) -> str:
    """Name the sides that err by more than a correct kernel of the same precision can; "" if neither does."""
    ratios = [(label, culprit.bound.get(side)) for side, label in (("a", a), ("b", b))]
    beyond = [f"{_times(ratio)} as large in {label}" for label, ratio in ratios if ratio is not None and ratio > 1]
    if not culprit.is_of_kernel or not beyond:
        return ""
    name = (culprit.op or "").partition(".")[2]
    correct, allow = ("any order of summation", "allows") if sums(name) else ("correctly rounded steps", "allow")
    return f"the error is {' and '.join(beyond)} as {correct} in its precision {allow}"


def versions_of(culprit: Culprit) -> str:
    """Name the op in both versions of torch, and say whether the version alone may be to blame; "" if both sides have
    the same version."""
    if not culprit.torch:
        return ""
    names = {side: f"{_named_op(culprit, side)} of torch {version}" for side, version in culprit.torch.items()}
    what = {KERNEL: "the kernel", LAYOUT: "the layout"}.get(culprit.kind, "the executed op")
    return f"{names['a']} against {names['b']}: {what} {DIFFERS.get(culprit.blame, OR_MODE)}"


def versions_of_all(culprit: Culprit, a: str, b: str) -> str:
    """Return the sentence of `versions_of` for all culprits of a pair; `culprit` represents them."""
    by = f"they {DIFFERS.get(culprit.blame, OR_MODE).replace('differs', 'differ')}"
    return f"all are ops of torch {culprit.torch['a']} in {a} and of torch {culprit.torch['b']} in {b}: {by}"


def _named_op(culprit: Culprit, side: str) -> str:
    """Name the ops of a side as that side calls them, in the namespace of the culprit's op."""
    namespace = (culprit.op or "aten.").partition(".")[0]
    ops = [f"{namespace}.{name}" for name in culprit.ops.get(side, ())[:MOST_NAMED]]
    more = len(culprit.ops.get(side, ())) - len(ops)
    listed = ", ".join(ops) + (f" and {more} more" if more else "")
    return listed or ("nothing" if culprit.kind == STRUCTURE else culprit.op or "an op")


def _times(ratio: float | None) -> str:
    """Format a ratio. A huge ratio prints as "many times": if a correct kernel is exact, its value means nothing."""
    return f"{ratio:.3g} times" if ratio is not None and ratio < MANY else "many times"


def _proof(culprit: Culprit, proof: Proof, a: str, b: str) -> str:
    if culprit.is_way and culprit.kind != MARK_STEP:
        return proof.why
    came, went = proof.swap_in, proof.swap_out
    if culprit.kind == MARK_STEP:  # `swapped` is a policy, a key of a mode, or a phrase
        policy = str(culprit.policy["swapped"])
        swapped = policy if " " in policy else f"mark_step={policy}"
        swapped = f"each op executed by itself ({policy})" if "=" in policy else swapped
        before, after = _z(came.score_after), _z(went.score_after)
        scores = f"z {before} with mark_step={culprit.policy[b]}, {after} with {swapped}"
        return f"compared with the same ops executed one by one: {scores}"
    if proof.swapped_with:
        others = "1 other cause" if proof.swapped_with == 1 else f"{proof.swapped_with} other causes"
        return f"swapped into {a} together with {others} that only round differently: z {_z(came.score_after)}"
    sentences = []
    if came.score_after is not None:
        appears = "appears" if came.holds else "does not appear"
        sentences.append(f"when it is swapped into {a}, the drift {appears} (z {_z(came.score_after)})")
    first, alone, without = went.score_before, went.score_after, went.score_without_all
    if alone is not None and first is not None and without is not None and alone >= first > without:
        # The effects of several culprits do not add up: swapping out only one may remove nothing, or may remove an
        # effect that compensates for another.
        sentences.append(
            f"when only it is swapped out of {b}, the drift stays (z {_z(first)} to {_z(alone)}); together with the "
            f"other causes, z goes to {_z(without)}"
        )
    elif alone is not None:
        sentences.append(f"when it is swapped out of {b}, z goes from {_z(first)} to {_z(alone)}")
    if proof.together_with:
        sentences.append(f"it acts only together with {proof.together_with} of the other causes")
    if proof.why:
        sentences.append(proof.why)
    return "; ".join(sentences)


def from_here(path: str) -> str:
    """Return the path relative to the current folder, if it is inside that folder.

    A file of a revision that a mode states is written as git writes it: `28514c143c:src/net.py`.
    """
    if (of_revision := REVISION.match(path)) is not None:
        return f"{of_revision[1][:10]}:{of_revision[2]}"
    full, folder = Path(path).absolute(), Path.cwd()
    return str(full.relative_to(folder) if full.is_relative_to(folder) else path)


def _z(score: float | None) -> str:
    return "unknown" if score is None else f"{score:.3g}"
