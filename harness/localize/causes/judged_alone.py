"""The verdict on a cause alone, on the inputs of its block, independent of the noise of the step around it.

    different-setup   "generator"   it draws from another state of a generator
    beyond-rounding   "choice"      an op whose results are whole numbers or choices returns others on equal inputs
                      "error"       its error is more than 16 times the effect of rounding its inputs, and more than if
                                    its sums were added up one term after the other
                      "bound"       its error is more than 16 times the largest one of a correct kernel of its precision
                      "once"        it rounds each element to 16 bits once, and errs by more than 8 such roundings
                      "bias"        its errors lean to one side, which those of rounding do not
                      "values"      other arguments, or ops that only one side has, move values by more than rounding,
                                    or move whole numbers at all
    rounding          "within"      on both sides its errors are at most the effect of rounding its inputs
                      ""            no other rule applies, and its error is known
    None              ""            its inputs or its error are not known

The sides are compared with each other: if both are equally far from double, neither is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ...records.results.culprit import KERNEL, LAYOUT, SETTING, SETUP
from ..align.argument_differences import GENERATOR, PART
from ..align.argument_differences import LAYOUT as RELAID
from ..align.storage_flow import SIDES, Side
from ..errors.local_error import LocalError
from .examination import Examined
from .net_effect import Effects
from .suspects import UNROUNDED
from .swap_sites import Cause

LOCAL_FAULT = 16.0
"""The rho from which on a kernel is at fault by itself, however noisy the step around it is."""

MOVED = 4.0
"""The rho, and the number of roundings of their own precision, from which on values differ by more than rounding."""

MEANT = 2.0
"""The number of roundings from which on an op's arguments have another meaning, whatever rounding its inputs adds."""

ONCE = 8.0
"""The number of roundings from which on an elementwise op that rounds each element once is wrong: a right one errs by
one."""

LEANS, UPRIGHT = 6.0, 3.0
"""The bias of errors, in standard errors of their signs, from which on they lean to one side, and up to which they do
not."""

MOST = 0.5
"""The lean (mean of the signs) from which on most errors are to one side. Long sums in float32 lean by 0.1 or 0.2."""

UNREAD = "or what "
"""The beginning of the reason for an op whose inputs in its compiled graph are not known."""

OTHER_PRODUCTS = 1e4
"""The factor for the bound of convolutions, in place of LOCAL_FAULT. A library may compute them by Winograd or Fourier
transforms, whose errors are larger than those of sums of products."""

CHOICES = frozenset(
    (
        "argmax", "argmin", "bucketize", "ceil", "eq", "floor", "floor_divide", "fmod", "ge", "gt", "isfinite", "isinf",
        "isnan", "le", "lt", "ne", "remainder", "round", "searchsorted", "sign", "trunc",
    )
)  # fmt: skip
"""Ops for which all correct kernels compute the same result on the same inputs."""


WITHIN = 2.0
"""The rho up to which an error is at most the effect of rounding the inputs of a good kernel."""


def judged_alone(
    cause: Cause, examined: Mapping[int, Examined], errors: Mapping[Side, LocalError], effects: Effects
) -> tuple[str | None, str]:
    """Return the verdict and the rule behind it.

    `errors` are each side's largest ones at the cause's sites. `effects` are the joint effects of sites with several
    blocks.
    """
    if cause.kind == SETUP:
        return ("different-setup", "generator") if any(GENERATOR in reason for reason in cause.reasons) else (None, "")
    if any(reason.startswith((UNREAD, UNROUNDED)) for reason in cause.reasons):
        return None, ""
    tests = [examined[block] for block in cause.blocks if block in examined and examined[block].differs is not False]
    chooses = any(len(cause.ops[side]) == 1 and CHOICES.issuperset(cause.ops[side]) for side in SIDES)
    leads = [examined[site.lead] for site in cause.sites]
    if any(test.elsewhere or (chooses and test.largest) for test in leads):
        return "beyond-rounding", "choice"
    # Another layout is also another kernel, of the same op on the same values.
    kernels = (KERNEL, LAYOUT, SETTING)

    def is_told(test: Examined) -> bool:
        # A setting chooses kernels: ops that it executes with other arguments, such as cuDNN's, compute the same.
        chosen = cause.kind == SETTING or test.suspect.kind in kernels
        return not chosen and not {RELAID, PART}.issuperset(test.suspect.reasons)

    other_arguments = any(map(is_told, tests))
    convolves = "convolution" in "".join(cause.ops["a"])

    def limit_of(blocks: Iterable[Examined]) -> float:
        # A correct kernel may add its n terms one after the other, with an error of up to sqrt(n) of their roundings.
        terms = max((block.terms for block in blocks), default=0) if cause.kind in kernels else 0
        return max(LOCAL_FAULT, math.sqrt(terms))

    moved = max((test.roundings for test in tests), default=0.0)
    single = bool(leads) and all(test.single for test in leads)
    rule = _rule(
        errors, moved, other_arguments=other_arguments, convolves=convolves, single=single, limit=limit_of(tests)
    )
    is_known = len(errors) == len(SIDES)
    if not rule and is_known and moved > ONCE and all(test.once for test in tests):
        better, worse = sorted(error.ulp for error in errors.values())
        rule = "once" if worse > ONCE * max(1.0, better) else ""
    within = all(_within(test.errors, test.roundings if test.differs else math.inf) for test in tests)
    # A kernel whose site has no effect on the first phase, bit for bit, acts in the backward: its own errors count.
    leaves_nothing = cause.kind == KERNEL and bool(errors) and _leaves_nothing(cause, effects)
    if any(site.is_several for site in cause.sites) and not leaves_nothing:
        phases = [effects.get(site, ()) for site in cause.sites]
        # The backward reads the results of the first phase: the first phase's effect counts.
        first = [phase_effects[0] for phase_effects in phases if phase_effects and phase_effects[0] is not None]
        other_arguments = any(
            is_told(test) for test in tests if any(test.suspect.block in effect.blocks for effect in first)
        )
        moved = max((effect.roundings for effect in first), default=0.0)
        measured = [effect for effect in first if not effect.like_others]
        if is_known := bool(measured) and all(len(effect.errors) == len(SIDES) for effect in measured):
            rules = [
                _rule(
                    *(effect.errors, effect.roundings),
                    other_arguments=other_arguments,
                    convolves=convolves,
                    single=effect.single,
                    limit=limit_of(examined[block] for block in effect.blocks if block in examined),
                )
                for effect in measured
            ]
            rule = next(filter(None, rules), rule if rule in ("bias", "bound") else "")
        rule = rule if moved > MOVED else ""
        within = all(
            effect is not None and (effect.like_others or _within(effect.errors, effect.roundings))
            for phase in phases
            for effect in phase
        )
    # A different whole number among the arguments cannot come from rounding; nor can a difference in exact arithmetic.
    meant = max((test.meant for test in leads), default=0.0) > MEANT and moved > MEANT
    if rule or (other_arguments and (math.isinf(moved) or meant)):
        return "beyond-rounding", rule or "values"
    return ("rounding", "within" if within else "") if is_known else (None, "")


def _leaves_nothing(cause: Cause, effects: Effects) -> bool:
    first = [site_effects[0] for site in cause.sites if (site_effects := effects.get(site))]
    return bool(first) and all(effect is not None and not effect.roundings for effect in first)


def _rule(
    errors: Mapping[Side, LocalError],
    roundings: float,
    *,
    other_arguments: bool,
    convolves: bool,
    single: bool,
    limit: float = LOCAL_FAULT,
) -> str:
    """Return the rule by which these errors are a fault, "" if they are none.

    other_arguments: True if the sides are called with different arguments.
    limit: the rho from which on an error is a fault.
    single: True for a single number, such as a norm. Its error is not averaged, and may by chance be several times the
        usual one.
    """
    if len(errors) < len(SIDES):
        return ""
    worse, better = sorted(errors.values(), key=lambda error: error.rho, reverse=True)
    if worse.rho > limit * max(1.0, better.rho):
        return "values" if other_arguments else "error"
    least = LOCAL_FAULT if single else MOVED
    if other_arguments and min(worse.rho, roundings) > least * max(1.0, better.rho):
        return "values"
    if worse.rho > MOVED * max(1.0, better.rho) and _leans(worse) and abs(better.bias) < UPRIGHT:
        return "bias"
    # A product that is not rounded before it is added exceeds the bounds of single elements, but hardly moves them.
    bounds = [error.bound for error in errors.values() if error.bound is not None and not math.isnan(error.bound)]
    times = OTHER_PRODUCTS if convolves else LOCAL_FAULT
    breaks = len(bounds) == len(SIDES) and max(bounds) > times * max(1.0, min(bounds))
    return "bound" if breaks and roundings > MOVED else ""


def _leans(error: LocalError) -> bool:
    return abs(error.bias) > LEANS and abs(error.lean) > MOST


def _within(errors: Mapping[Side, LocalError] | None, roundings: float) -> bool:
    if roundings <= WITHIN:
        return True  # however far from double both are, they agree with each other
    measured = errors or {}
    return len(measured) == len(SIDES) and all(
        error.rho <= WITHIN and (error.bound is None or error.bound <= 1) for error in measured.values()
    )
