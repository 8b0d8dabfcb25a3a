"""Settings as causes: the blocks that compute different bits because torch's settings differ between the sides.

A side's process executes a call of a block once more, with one setting at the other side's value and all else
unchanged. If the result has the other side's bits, the setting is the reason. All blocks with the same reason form one
cause:

    convolution             mkldnn is off in plain, on in cpu: with mkldnn=on, plain computes the bits of cpu
    convolution_backward    the same reason: "all 4 calls of convolution and convolution_backward differ because ..."

Some settings choose which op is executed. An op that is named after a library or an attention kernel cannot be
executed if that library or kernel is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...tape.replaying.replay import is_same, set_apart
from ..align.storage_flow import SIDES, Side, other
from ..causes.examination import Examined, compared_results, flagged
from ..causes.judged_alone import LOCAL_FAULT
from ..causes.kernel_names import is_generated
from ..causes.setting_difference import SettingDifference, all_together, liberties, setting_differences
from ..causes.site_causes import PHASES, Cause, SettingReason
from ..causes.swap_sites import SwapSite
from ..errors.result_distances import relative
from ..execute.hybrid import Hybrid, HybridExecution
from ..execute.prepared_call import Kernels, PreparedCall
from ..execute.step_memory import Memory
from ..execute.step_side import StepSide
from ..execute.tape_pair import TapePair
from ..execute.worker_calls import WorkerCalls

PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "linear", "matmul"))

CHOSEN_OPS: Mapping[str, str] = {
    "_scaled_dot_product_flash_attention": "attention.flash",
    "_scaled_dot_product_efficient_attention": "attention.efficient",
    "_scaled_dot_product_cudnn_attention": "attention.cudnn",
    "_scaled_dot_product_fused_attention_overrideable": "attention.overrideable",
    "cudnn_": "cudnn",
    "_cudnn_": "cudnn",
    "mkldnn_": "mkldnn",
    "_mkldnn_": "mkldnn",
}
"""The setting that must be on for an op to be executed, by the beginning of the op's name."""


class OtherwiseSet:
    """The kernels of a side's process, executed with different values for some of torch's settings."""

    def __init__(self, calls: WorkerCalls, settings: Mapping[str, Any]) -> None:
        self._calls = calls
        self._settings = settings

    def execute(self, call: PreparedCall) -> list[Any]:
        return self._calls.execute(call, self._settings)


def blocks_by_setting(
    pair: TapePair,
    examined: Mapping[int, Examined],
    differences: Sequence[SettingDifference],
    calls: Mapping[Side, WorkerCalls],
    narrower: Sequence[SettingDifference] = (),
) -> dict[int, SettingDifference]:
    """Return the blocks that compute different bits because of a setting, each with that setting.

    `calls` are those of the available workers. Each setting is tried alone, then all of them together. If the sides
    compute a block on different devices, the `narrower` settings are tried on side b's device. Such a setting is the
    reason if it reduces a difference beyond rounding to rounding.
    """
    tried = [*differences, *([all_together(differences)] if len(differences) > 1 else [])]
    candidates = {number for number, block in examined.items() if _is_candidate(pair, number, block)}
    wide = {
        candidate
        for candidate in candidates
        if examined[candidate].roundings > LOCAL_FAULT and len(_devices(pair, candidate)) > 1
    }
    tested = (candidates if tried else set()) | (wide if narrower else set())
    reasons: dict[int, SettingDifference] = {}
    with set_apart(pair.devices()):
        execution = HybridExecution(pair, Hybrid("b"))
        for number, before in execution.stops(tested if calls else ()):
            trials = _Trials(execution, number, before, calls)
            reason = next((difference for difference in tried if trials.is_reason(difference)), None)
            if reason is None and number in wide:
                reason = next((difference for difference in narrower if trials.is_nearer(difference)), None)
            if reason is not None:
                reasons[number] = reason
    return reasons


def _is_candidate(pair: TapePair, number: int, block: Examined) -> bool:
    """Check whether a setting can be the reason for a block: the same op on both sides computes different bits.

    A setting is not the reason if a compiler generates the code of only one side: the difference comes from this code.
    """
    if not block.differs or block.suspect.kind not in ("kernel", "layout") or not pair.blocks[number].is_pair:
        return False
    left, right = pair.all_nodes(number)
    is_compiled_once = (left.call.compiled is None) != (right.call.compiled is None)
    return left.call.op == right.call.op and not (is_generated(right) and is_compiled_once)


class _Trials:
    """The trials of settings in one block, on side b's values."""

    def __init__(
        self, execution: HybridExecution, number: int, before: Memory, calls: Mapping[Side, WorkerCalls]
    ) -> None:
        self._execution = execution
        self._number = number
        self._before = before
        self._calls = calls
        self._plain: dict[Side, list[torch.Tensor]] = {}

    def is_reason(self, difference: SettingDifference) -> bool:
        """Check whether a side computes the other side's bits with the other side's setting."""
        for side in reversed(SIDES):
            if side not in self._calls:
                continue
            with suppress(Exception):  # an op may raise anything on values other than its recorded ones
                results, other_results = self._set(side, difference.values[other(side)]), self._as_it_is(other(side))
                if all(is_same(a.to(b.device, b.dtype), b) for a, b in zip(results, other_results, strict=True)):
                    return True
        return False

    def is_nearer(self, difference: SettingDifference) -> bool:
        """Check whether side b is far closer to side a without the extra rounding that the setting allows."""
        with suppress(Exception):  # as above
            without, plain = self._set("b", difference.values["a"]), self._as_it_is("b")
            distances = [
                max(relative(a, b.to(a.device)) for a, b in zip(self._as_it_is("a"), results, strict=True))
                for results in (without, plain)
            ]
            return distances[1] > LOCAL_FAULT * distances[0]
        return False

    def _set(self, side: Side, settings: Mapping[str, Any]) -> list[torch.Tensor]:
        return self._results(side, OtherwiseSet(self._calls[side], settings))

    def _as_it_is(self, side: Side) -> list[torch.Tensor]:
        if side not in self._plain:
            self._plain[side] = self._results(side, self._execution.pair.kernels[side])
        return self._plain[side]

    def _results(self, side: Side, kernels: Kernels) -> list[torch.Tensor]:
        pair, memory = self._execution.pair, self._before.fork()
        HybridExecution(pair, Hybrid("b"), {**pair.kernels, side: kernels}).run_as(side, self._number, memory)
        place = SIDES.index(side)
        return [memory.tensor(side, uses[place]).clone() for uses in compared_results(pair, self._number)]


def with_settings(
    pair: TapePair, examined: Mapping[int, Examined], causes: Sequence[Cause], sides: Mapping[Side, StepSide]
) -> list[Cause]:
    """Return the causes, with all sites that differ because of one setting joined into one cause."""
    specs = {side: sides[side].spec for side in SIDES}
    differences = setting_differences({side: sides[side].tape for side in SIDES}, specs)
    calls = {side: step_side.calls for side, step_side in sides.items() if step_side.calls is not None}
    narrower = liberties(sides["b"].tape, specs["b"]) if "b" in calls else []
    by_setting = blocks_by_setting(pair, examined, differences, calls, narrower)
    if not by_setting and not differences:
        return list(causes)
    regrouped, sites = list[Cause | SettingDifference](), dict[str, list[SwapSite]]()
    for cause in causes:
        other_sites = []
        for site in cause.sites:
            reason = _reason(pair, examined, site, by_setting, differences) if not cause.inputs else None
            if reason is None:
                other_sites.append(site)
                continue
            if reason.name not in sites:
                regrouped.append(reason)
            sites.setdefault(reason.name, []).append(site)
        if other_sites or not cause.sites:
            regrouped.append(replace(cause, sites=tuple(other_sites)))
    return [
        _cause(pair, examined, entry, sites[entry.name], sides["a"].label)
        if isinstance(entry, SettingDifference)
        else entry
        for entry in regrouped
    ]


def _reason(
    pair: TapePair,
    examined: Mapping[int, Examined],
    site: SwapSite,
    by_setting: Mapping[int, SettingDifference],
    differences: Sequence[SettingDifference],
) -> SettingDifference | None:
    """Return the setting that makes a site differ; None if there is no such setting or if the site has several."""
    differing = flagged(examined, site.blocks)
    reasons = {by_setting[number].name: by_setting[number] for number in differing if number in by_setting}
    if len(reasons) == 1 and all(number in by_setting for number in differing if examined[number].differs):
        return next(iter(reasons.values()))
    if reasons or any(len(_devices(pair, number)) > 1 for number in differing):
        return None
    chosen = {name for number in differing for name in _chosen_by(pair, number, differences)}
    return next((difference for difference in differences if chosen.intersection(difference.values["a"])), None)


def _chosen_by(pair: TapePair, number: int, differences: Sequence[SettingDifference]) -> Iterator[str]:
    """Yield the settings that one side needs to execute an op of the block and that are off on the other side."""
    settings = {
        side: {name: difference.values[side][name] for difference in differences for name in difference.values[side]}
        for side in SIDES
    }
    for side in SIDES:
        for op in pair.names(number, side):
            name = next((name for start, name in CHOSEN_OPS.items() if op.startswith(start)), None)
            if name is not None and settings[side].get(name) and not settings[other(side)].get(name, True):
                yield name


def _devices(pair: TapePair, number: int) -> set[str]:
    """Return the devices of the values that a block makes, on the sides that have the block."""
    slots = {side: pair.flows[side].tape.slots for side in SIDES}
    made = ((side, use.value.slot) for side in SIDES for node in pair.nodes(number, side) for use in node.made)
    return {slots[side][slot].device for side, slot in made}


def _cause(
    pair: TapePair,
    examined: Mapping[int, Examined],
    difference: SettingDifference,
    sites: Sequence[SwapSite],
    reference: str,
) -> Cause:
    leads = [site.lead for site in sites]
    blocks = [
        number for site in sites for number in site.blocks if number in examined and examined[number].differs
    ] or leads
    blocks.sort(key=lambda number: (PHASES.index(pair.phase(number)), number))
    ops = {side: tuple(dict.fromkeys(op for number in blocks for op in pair.names(number, side))) for side in SIDES}
    effect = _effect(pair, blocks)
    why = f"{difference.name} is {difference.shown['b']}{_where(difference, 'b')}"
    if "a" in difference.shown:
        why += f", {difference.shown['a']}{_where(difference, 'a')} in {reference}"
    else:
        effect += " by more than rounding"
        subject = "it is" if len(blocks) == 1 else "they are"
        why += f": with {difference.swapped} {subject} within rounding of {reference}"
    ordered = tuple(sorted(sites, key=lambda site: site.lead))
    setting = SettingReason(difference, effect)
    return Cause("setting", pair.phase(blocks[0]), ops, (f"{effect} because {why}",), ordered, setting=setting)


def _effect(pair: TapePair, blocks: Sequence[int]) -> str:
    """Describe the difference of these blocks, as in `all 72 matrix products differ`."""
    names = list(dict.fromkeys(op for number in blocks for op in pair.names(number, "a")))
    if not all(pair.blocks[number].is_pair for number in blocks):  # the sides execute different ops
        executed = [op for number in blocks for side in SIDES for op in pair.names(number, side)]
        chosen = list(dict.fromkeys(op for op in executed if op.startswith(tuple(CHOSEN_OPS))))
        return f"{_listed(chosen)} {'is' if len(chosen) == 1 else 'are'} executed on only one side"
    alike_count = sum(
        block.is_pair and set(pair.names(number, "a")) <= {*names} for number, block in enumerate(pair.blocks)
    )
    several, some = len(blocks) > 1, len(blocks) < alike_count
    every = "both" if len(blocks) == 2 else f"all {len(blocks)}" if several else "1"
    count = f"{len(blocks)} of {alike_count}" if some else every
    plural = "s" * (several or some)
    noun = f"matrix product{plural}" if PRODUCTS.issuperset(names) else f"call{plural} of {_listed(names)}"
    return f"{count} {noun} differ{'' if several else 's'}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _where(difference: SettingDifference, side: Side) -> str:
    line = difference.lines.get(side)
    return f" ({Path(line).name})" if line else " (set by the mode)" if side in difference.stated else ""
