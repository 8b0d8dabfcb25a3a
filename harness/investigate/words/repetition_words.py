"""Sentences about the difference between two runs of one mode, and about a draw that only one of two modes makes.

in step 5 aten.mul in the forward, train.py:46 (`y * noise()`), receives a different number in each run (1.0000012 and
1.0000034), which came from outside of torch
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...drift.call_difference import UNFILLED, CallDifference
from ...drift.recorded_drift import GENERATORS
from ...drift.setup.draw_difference import DrawDifference
from ...records.modes.mode_spec import ModeSpec
from ...records.modes.repeating_advice import repeating_advice
from ...records.values.call_record import GRAPH, OWN, SETUP_PHASE, CallRecord
from ...records.values.unfilled_read import UnfilledRead
from .culprit_words import PHASES, from_here

MOST_NAMED = 2
"""The largest number of calls that a sentence names."""

MOST_CODE = 100
"""The largest number of characters shown of a line of the script."""

OUTSIDE = "came from outside of torch (another generator, the time, the operating system, a file)"


def sentence_of(difference: CallDifference) -> str:
    """Describe how two runs first differ, by the call that shows the difference."""
    first_call, second_call, made = difference.a, difference.b, difference.made
    when = _when(difference.step, difference.call.phase)
    if difference.what == "branch":
        left, right = (
            place_of(call) if call is not None else "the end of the step" for call in (first_call, second_call)
        )
        return (
            f"{when} one run continues with {left} and the other with {right}, although every value was the same "
            "until then: the decision came from outside of torch"
        )
    assert first_call is not None
    place = place_of(first_call)
    match difference.what:
        case "computed":
            return f"{when} {place} computes different bits from equal inputs"
        case "number":
            values = " and ".join(number[:40] or "none" for number in difference.numbers)
            return f"{when} {place} receives a different number in each run ({values}), which {OUTSIDE}"
        case "outside":
            return f"{when} {place} takes a tensor whose values differ from run to run: they {OUTSIDE}"
        case "generator":
            return f"{when} {place} draws from {_generator(difference.numbers[0])}, whose state differs from run to run"
        case "seeded":
            return f"{when} {place} sets {_generator(difference.numbers[0])} to a different state in each run"
        case "race":
            assert made is not None
            return (
                f"{when} threads race: {place_of(made)} writes to the same memory in a different order in each run, "
                f"and {place} reads it"
            )
        case "unfilled" if made is not None:
            return (
                f"{when} {place} reads uninitialized memory that {place_of(made)} has allocated, part of which no op "
                "has written: it contains different values in each run"
            )
        case "unfilled":
            return f"{when} {place} reads uninitialized memory, which contains different values in each run"
    by = f" that {place_of(made)} has returned and" if made is not None else ""
    return (
        f"{when} {place} reads memory{by} that no op has written since, and yet it holds different values in each "
        "run: another thread, NumPy or a kernel of the script's own writes to it"
    )


def unfilled_sentence(unfilled: UnfilledRead) -> str:
    """Describe a read of uninitialized memory, in a mode whose ops have no values when they are called."""
    call, made_by = unfilled.call, unfilled.made_by
    if unfilled.read_by is not None:
        does = "allocates memory" if call.name in UNFILLED else "leaves part of its result unwritten"
        return (
            f"{_when(call.step, call.phase)} {place_of(call)} {does}, and {place_of(unfilled.read_by)} reads it before "
            "any op has written it: the values that happen to be there enter the results"
        )
    how = (
        f"returns memory that {made_by} has allocated without values and" if call.op != made_by else "allocates memory"
    )
    return (
        f"{_when(call.step, call.phase)} {place_of(call)} {how} that no op has filled: the values that happen to be "
        "there enter the results"
    )


def unfilled_remedy(unfilled: UnfilledRead) -> str:
    """Say how to avoid the read of uninitialized memory."""
    if unfilled.read_by is not None and unfilled.call.name not in UNFILLED:
        return f"correct {unfilled.call.name}, or fill its result before it is read"
    if unfilled.call.op == unfilled.made_by:
        return "fill it before it is read (torch.zeros in place of torch.empty)"
    return f"replace {unfilled.call.op} with a different op: this mode loses what it writes"


def remedy_of(difference: CallDifference, spec: ModeSpec) -> str:
    """Say how to avoid the difference in a mode."""
    match difference.what:
        case "computed" if difference.call.op.startswith(GRAPH):
            return repeating_advice(spec, compiled=True)
        case "computed":
            return repeating_advice(spec, [difference.call.op], compiled=spec.capabilities.compiles)
        case "generator" | "seeded":
            return "seed it with the same number in every run"
        case "race":
            return "let the threads write in a fixed order, or each to its own memory"
        case "unfilled":
            return "fill it before it is read (torch.zeros in place of torch.empty)"
        case "changed":
            return "find out what writes to it, and let the step wait for that"
    return "make it from a seed that is the same in every run"


def spread_sentence(
    label: str, calls: Sequence[Mapping[str, Any]], score: float, adding: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Say that a mode does not repeat, and that its spread counts as noise.

    `calls` are those on its tapes. If there are none, `adding` are those that may be the reason.
    """
    listed = sorted(calls, key=lambda call: -(call.get("share") or 0.0)) or list(adding)
    named = [_unrepeatable(call, several=len(calls) > 1) for call in listed[:MOST_NAMED]]
    more = len(listed) - len(named)
    rest = [f"{more} more call{'s' if more > 1 else ''}"] if more > 0 else []
    which = (" and " if calls else " or ").join([*named, *rest])
    if calls:
        verb = "computes" if len(calls) == 1 else "compute"
        which = f": {which} {verb} different bits from equal inputs each time"
    elif adding:
        which = f" (which of its calls is not known; it may be {which})"
    else:
        which = " (which of its calls is not known)"
    start = f"{label} does not repeat its own bits{which}. Executed several times from one state"
    if not score:
        return f"{start}, its results happened to be the same"
    return f"{start}, its results are up to {score:.2g} times the rounding noise apart; that counts as noise"


def recording_sentence(label: str, score: float, *, is_noise: bool) -> str:
    """Say that a mode computes other bits while its ops are recorded.

    `score` says how far they are from each other, and is infinite if other elements are finite. If that is no noise,
    the step was compared without recording.
    """
    how_far = "other elements are NaN or infinite" if math.isinf(score) else f"the results move by {score:.2g} times"
    if is_noise:
        moved = f"The results move by up to {score:.2g} times the rounding noise; that counts as noise"
    else:
        how_far += "" if math.isinf(score) else " the rounding noise"
        moved = (
            f"As {how_far} then, this step is compared as both modes compute it without recording, and no op can be "
            "named as the cause"
        )
    return (
        f"while its ops are recorded, {label} computes other bits than otherwise, the same ones each time. The likely "
        f"reason is that autograd then takes another formula, as for the gradients of prod and masked_fill. {moved}"
    )


def hidden_sentence(label: str, score: float, threshold: float) -> str:
    """Say how large a fault would have to be to show in spite of a mode's spread."""
    if math.isinf(score):
        return f"the executions of one step of {label} have nothing in common: no fault could be seen in spite of that"
    return (
        f"the executions of one step of {label} are up to {score:.2g} times the rounding noise apart: only a fault "
        f"that moves the step by more than about {score * threshold:.2g} times that noise could be seen"
    )


def beyond_order_sentence(call: CallRecord, spread: float, error: float) -> str:
    """Say that a call that does not repeat differs by more than the order of its additions; `spread` and `error` are
    multiples of what that order explains."""
    where = f"{_when(call.step, call.phase)} {place_of(call)} computes different bits from equal inputs each time"
    more = "so not only the order of its additions varies: threads race, numbers get lost, or the kernel is wrong"
    if spread >= error:
        return f"{where}, {spread:.2g} times as far apart as the order of its additions explains; {more}"
    far = f"{error:.2g} times as far from double as the order of its additions explains"
    return f"{where}, and its results are {far}; {more}"


def _unrepeatable(call: Mapping[str, Any], *, several: bool) -> str:
    name = ".".join(str(call["op"]).split(".")[:2])
    module = f" of {call['module']}" if call.get("module") else ""
    line = f", {from_here(call['line'])}" if call.get("line") else ""
    spread = call.get("spread")
    share = call.get("share")
    of_step = f", {share:.0%} of the step's spread".replace("%", " %") if several and share is not None else ""
    by = f" (by up to {spread:.2g} of its own roundings{of_step})" if isinstance(spread, float) else ""
    return f"{name} in {PHASES.get(call['phase'], call['phase'])}{module}{line}{by}"


def draw_sentence(difference: DrawDifference, generator: str, a: str, b: str) -> str:
    """Name the draw that only one of two modes makes; `a` and `b` are their names."""
    when, called = _when(difference.step, (difference.b or difference.call).phase), _generator(generator)
    after = "" if difference.after is None else f", after {place_of(difference.after)}, which is the same in both"
    if difference.forward is not None:
        label, call = (a if difference.side == "a" else b), difference.call
        again = "" if call.line == difference.forward.line else f" at {_shown(call.line)}"
        return (
            f"{when} {place_of(difference.forward)} is drawn again, with different numbers, by a recomputation in the "
            f"backward{again} of {label}; keep the state of the generator for the recomputation "
            "(in torch.utils.checkpoint, preserve_rng_state=True)"
        )
    if difference.side != "both":
        alone, without = (a, b) if difference.side == "a" else (b, a)
        does = "draws from" if difference.call.op else "changes the state of"
        return f"{when} {place_of(difference.call)} {does} {called} in {alone} but not in {without}{after}"
    assert difference.a is not None and difference.b is not None
    if (difference.a.op, difference.a.line) == (difference.b.op, difference.b.line):
        does = "sets" if difference.seeded else "draws a different number of values from"
        state = " to a different state" if difference.seeded else ""
        return f"{when} {place_of(difference.call)} {does} {called}{state} in {b} than in {a}{after}"
    return f"{when} {a} draws from {called} by {place_of(difference.a)}, and {b} by {place_of(difference.b)}{after}"


def shown_by_stand_in(label: str) -> str:
    """Return the end of a sentence about a mode whose stand-in was recorded in its place."""
    return f", as shown by a training run that executes every op of {label} separately"


def place_of(call: CallRecord) -> str:
    """Describe the place of a call: `aten.mul in the forward of net.1, train.py:31 (`y * noise()`)`; without an op, its
    line is the whole description."""
    shown = _shown(call.line)
    if not call.op:
        return shown or "a line between these calls"
    what = f"compiled graph {call.op.removeprefix(GRAPH)}" if call.op.startswith(GRAPH) else call.name
    phase = PHASES.get(call.phase, "") if call.phase != SETUP_PHASE else ""
    where = f" in {phase}" if phase else ""
    module = f" of {call.module}" if call.module else ""
    return f"{what}{where}{module}{f', {shown}' if shown else ''}"


def _when(step: int, phase: str) -> str:
    return "before the first step" if phase == SETUP_PHASE else f"in step {step}"


def _shown(line: str) -> str:
    if not line:
        return ""
    file, _, number = line.rpartition(":")
    code = linecache.getline(file, int(number)).strip() if number.isdecimal() else ""
    code = f"{code[:MOST_CODE]}..." if len(code) > MOST_CODE else code
    return f"{from_here(line)} (`{code}`)" if code else from_here(line)


def _generator(name: str) -> str:
    if name.startswith(OWN):
        return "a generator of the script's own"
    return GENERATORS.get(name, (f"the generator of {name}", ""))[0]
