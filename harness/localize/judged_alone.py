"""What a cause is by itself, on the inputs of its block, whatever the noise of the step around it is.

    different-setup   "generator"   it draws from another state of a generator
    beyond-rounding   "choice"      an op whose results are whole numbers or choices answers otherwise on equal inputs
                      "error"       its error is more than 16 times what rounding of its inputs causes, and more than it
                                    would be if its sums were added up one term after the other
                      "bound"       it errs by more than 16 times what a correct kernel of its precision can
                      "once"        it rounds each element to 16 bits once, and errs by more than 8 such roundings
                      "bias"        its errors lean to one side, which those of rounding do not
                      "values"      other arguments, or ops that one side alone has, move values by more than rounding:
                                    whole numbers at all
    rounding          "within"      on both sides all of it errs by no more than what rounding of its inputs causes
                      ""            none of that, and its error is known
    None              ""            what it read is not known, or its error

Each is held against the other side: where both are far from double by as much, it is not one of them that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..records.culprit import KERNEL, LAYOUT, SETTING, SETUP
from .argument_differences import GENERATOR, PART
from .argument_differences import LAYOUT as RELAID
from .examination import Examined
from .local_error import LocalError
from .net_effect import Effects
from .storage_flow import SIDES, Side
from .suspects import UNROUNDED
from .swap_sites import Cause

LOCAL_FAULT = 16.0
"""rho from which on a kernel is at fault by itself, whatever the step around it does."""

MOVED = 4.0
"""rho, and roundings of their own precision, from which on values are others and not just rounded otherwise."""

MEANT = 2.0
"""Roundings from which on what an op is told is another thing, however much rounding of its inputs causes beside it."""

ONCE = 8.0
"""Roundings by which an op is wrong that computes each element by itself and rounds it once: others err by one."""

LEANS, UPRIGHT = 6.0, 3.0
"""Standard errors of the signs of errors from which on they lean to one side, and up to which they do not."""

MOST = 0.5
"""The mean of the signs from which on most errors are to one side. Long sums in float32 lean by a tenth or two."""

UNREAD = "or what "
"""How the reason begins of an op whose inputs in its compiled graph are not known."""

OTHER_PRODUCTS = 1e4
"""The same for the bound of convolutions, which a library may compute by Winograd's or Fourier's products: those err by
more than sums of products do."""

CHOICES = frozenset(
    (
        "argmax", "argmin", "bucketize", "ceil", "eq", "floor", "floor_divide", "fmod", "ge", "gt", "isfinite", "isinf",
        "isnan", "le", "lt", "ne", "remainder", "round", "searchsorted", "sign", "trunc",
    )
)  # fmt: skip
"""Ops of which all correct kernels give one result on the same inputs."""


WITHIN = 2.0
"""rho up to which an error is what rounding of the inputs causes in a good kernel."""


def judged_alone(
    cause: Cause, examined: Mapping[int, Examined], errors: Mapping[Side, LocalError], effects: Effects
) -> tuple[str | None, str]:
    """The word and which rule gave it. `errors` are the largest of each side at its sites, `effects` what those of
    several blocks do together."""
    if cause.kind == SETUP:
        return ("different-setup", "generator") if any(GENERATOR in reason for reason in cause.reasons) else (None, "")
    if any(one.startswith((UNREAD, UNROUNDED)) for one in cause.reasons):
        return None, ""
    looked = [examined[one] for one in cause.blocks if one in examined and examined[one].differs is not False]
    chooses = any(len(cause.ops[side]) == 1 and CHOICES.issuperset(cause.ops[side]) for side in SIDES)
    leads = [examined[site.lead] for site in cause.sites]
    if any(one.elsewhere or (chooses and one.largest) for one in leads):
        return "beyond-rounding", "choice"
    # In another layout the same op on the same values has another kernel.
    kernels = (KERNEL, LAYOUT, SETTING)

    def is_told(one: Examined) -> bool:
        # A setting chooses kernels: what it has executed with other arguments, as cuDNN's ops, is told nothing else.
        chosen = cause.kind == SETTING or one.suspect.kind in kernels
        return not chosen and not {RELAID, PART}.issuperset(one.suspect.reasons)

    told = any(map(is_told, looked))
    convolves = "convolution" in "".join(cause.ops["a"])

    def limit_of(blocks: Iterable[Examined]) -> float:
        # A correct kernel may add up its n terms one after the other, and then errs by up to sqrt(n) roundings of them.
        terms = max((one.terms for one in blocks), default=0) if cause.kind in kernels else 0
        return max(LOCAL_FAULT, math.sqrt(terms))

    moved = max((one.roundings for one in looked), default=0.0)
    single = bool(leads) and all(one.single for one in leads)
    rule = _rule(errors, moved, told=told, convolves=convolves, single=single, limit=limit_of(looked))
    known = len(errors) == len(SIDES)
    if not rule and known and moved > ONCE and all(one.once for one in looked):
        better, worse = sorted(error.ulp for error in errors.values())
        rule = "once" if worse > ONCE * max(1.0, better) else ""
    within = all(_within(one.errors, one.roundings if one.differs else math.inf) for one in looked)
    # A kernel whose site leaves the first phase bit for bit as it was acts in the backward: its own errors tell.
    nothing = cause.kind == KERNEL and bool(errors) and _leaves_nothing(cause, effects)
    if any(site.is_several for site in cause.sites) and not nothing:
        phases = [effects.get(site, ()) for site in cause.sites]
        # What follows in the backward reads what the first phase has left: that one's effect counts.
        first = [one[0] for one in phases if one and one[0] is not None]
        told = any(is_told(one) for one in looked if any(one.suspect.block in of.blocks for of in first))
        moved = max((one.roundings for one in first), default=0.0)
        measured = [one for one in first if not one.like_others]
        if known := bool(measured) and all(len(one.errors) == len(SIDES) for one in measured):
            rules = [
                _rule(
                    *(one.errors, one.roundings),
                    told=told,
                    convolves=convolves,
                    single=one.single,
                    limit=limit_of(examined[block] for block in one.blocks if block in examined),
                )
                for one in measured
            ]
            rule = next(filter(None, rules), rule if rule in ("bias", "bound") else "")
        rule = rule if moved > MOVED else ""
        within = all(
            one is not None and (one.like_others or _within(one.errors, one.roundings))
            for phase in phases
            for one in phase
        )
    # What is told to be another whole number has no error, and is no rounding; nor is what differs in exact arithmetic.
    meant = max((one.meant for one in leads), default=0.0) > MEANT and moved > MEANT
    if rule or (told and (math.isinf(moved) or meant)):
        return "beyond-rounding", rule or "values"
    return ("rounding", "within" if within else "") if known else (None, "")


def _leaves_nothing(cause: Cause, effects: Effects) -> bool:
    first = [one[0] for site in cause.sites if (one := effects.get(site))]
    return bool(first) and all(one is not None and not one.roundings for one in first)


def _rule(
    errors: Mapping[Side, LocalError],
    roundings: float,
    *,
    told: bool,
    convolves: bool,
    single: bool,
    limit: float = LOCAL_FAULT,
) -> str:
    """By which rule these errors are a fault; `told` where the sides are told to compute other things, `limit` the rho
    from which on an error is one. The error of a `single` number, as a norm, is not averaged, and may by chance be some
    times the usual one."""
    if len(errors) < len(SIDES):
        return ""
    worse, better = sorted(errors.values(), key=lambda one: one.rho, reverse=True)
    if worse.rho > limit * max(1.0, better.rho):
        return "values" if told else "error"
    least = LOCAL_FAULT if single else MOVED
    if told and min(worse.rho, roundings) > least * max(1.0, better.rho):
        return "values"
    if worse.rho > MOVED * max(1.0, better.rho) and _leans(worse) and abs(better.bias) < UPRIGHT:
        return "bias"
    # A product that is not rounded before it is added breaks the bound of single elements, and moves hardly any.
    bounds = [one.bound for one in errors.values() if one.bound is not None and not math.isnan(one.bound)]
    times = OTHER_PRODUCTS if convolves else LOCAL_FAULT
    breaks = len(bounds) == len(SIDES) and max(bounds) > times * max(1.0, min(bounds))
    return "bound" if breaks and roundings > MOVED else ""


def _leans(error: LocalError) -> bool:
    return abs(error.bias) > LEANS and abs(error.lean) > MOST


def _within(errors: Mapping[Side, LocalError] | None, roundings: float) -> bool:
    if roundings <= WITHIN:
        return True  # as far from double as they may be, they are so together
    known = errors or {}
    return len(known) == len(SIDES) and all(
        one.rho <= WITHIN and (one.bound is None or one.bound <= 1) for one in known.values()
    )
