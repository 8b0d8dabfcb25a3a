"""The settings of torch that two sides of a step have otherwise: in the words of a mode, and as a script sets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..errors import NumdriftError
from ..records.culprit import Culprit, CulpritSetting
from ..records.mode_spec import ModeSpec, parse_mode
from ..records.setting_keys import SETTING_KEYS, device_of, without_effect
from ..tape.stated_settings import SETTINGS_OF_KEY, in_plain_words, same_value, value_of_key
from ..tape.tape import Tape
from ..torch_private.kernel_settings import TF32, UNSPLIT
from .storage_flow import SIDES, Side


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting with two values: `name` is a key of a mode, or what a tape calls the setting. By side `values` are all
    settings that it stands for, `shown` its value in words, and `lines` the line of the script that set it, where one
    did. `stated` are the sides whose mode states it. `swapped` is what a mode states to have side a's value of it, and
    of all others that differ: one that is off hides what others do. Where both sides have one value, which acts on the
    device of side b alone, `values` are of a setting without it for side a, and nothing is shown of that."""

    name: str
    values: Mapping[Side, Mapping[str, Any]]
    shown: Mapping[Side, str]
    lines: Mapping[Side, str]
    stated: Sequence[Side] = ()
    swapped: str = ""


def setting_differences(tapes: Mapping[Side, Tape], specs: Mapping[Side, str]) -> list[SettingDifference]:
    """The settings that both sides have otherwise, by the keys of a mode that stand for them: first those that one of
    the modes states, of which `specs` are the specifications. A key is left out that has no effect on their devices."""
    settings = {side: tapes[side].settings for side in SIDES}
    names = [one for one in settings["a"] if one in settings["b"]]
    left = {one: None for one in names if not same_value(settings["a"][one], settings["b"][one])}
    modes = {side: mode for side in SIDES if (mode := _mode(specs[side])) is not None}
    stated = {key: [side for side in modes if getattr(modes[side], key) is not None] for key in SETTINGS_OF_KEY}
    found, differing = list[SettingDifference](), list(left)
    for key in sorted(SETTINGS_OF_KEY, key=lambda key: not stated[key]):  # the sort is stable
        involved = [name for name in SETTINGS_OF_KEY[key] if name in differing]
        for name in involved:
            left.pop(name, None)
        if involved and not (len(modes) == len(SIDES) and all(_is_idle(key, mode) for mode in modes.values())):
            found.append(_difference(key, involved, tapes, stated[key]))
    found += [_difference(name, [name], tapes, ()) for name in left]
    swapped = ",".join(one.swapped for one in found if one.swapped)
    return [replace(one, swapped=swapped if one.swapped else "") for one in found]


EXACTLY: Mapping[str, str] = {"tf32": "ieee", "reduced_precision_reduction": "off"}
"""Keys of what an accelerator may round more than its dtypes do, with the value of their settings where it may not."""


def liberties(tape: Tape, spec: str) -> list[SettingDifference]:
    """What the device of side b may round more than the dtypes of its ops do, by the keys that forbid it."""
    mode, found = _mode(spec), list[SettingDifference]()
    for key, exact in EXACTLY.items():
        taken = {name: str(tape.settings.get(name, exact)) for name in SETTINGS_OF_KEY[key]}
        taken.pop("cudnn_tf32", None)  # a switch of what follows it
        taken = {name: value for name, value in taken.items() if not same_value(value.partition(" ")[0], exact)}
        if not taken:
            continue
        without = dict.fromkeys(taken, exact)
        line = next((line for name in taken if (line := tape.set_at.get(name))), "")
        shown = value_of_key(key, tape.settings) or "on"
        stated: list[Side] = ["b"] if mode is not None and getattr(mode, key) is not None else []
        lines: dict[Side, str] = {"b": line} if line and not stated else {}
        found.append(SettingDifference(key, {"a": without, "b": taken}, {"b": shown}, lines, stated, f"{key}=off"))
    return found


def _mode(spec: str) -> ModeSpec | None:
    with suppress(NumdriftError):
        return parse_mode(spec)
    return None


def _is_idle(key: str, mode: ModeSpec) -> bool:
    """Whether a key can have no effect on the device of a mode, whatever its value is."""
    device = device_of(mode.base, mode.device)
    values = SETTING_KEYS.get(key, ())
    return bool(values) and all(without_effect({key: value}, device) is not None for value in values)


def _difference(
    key: str, involved: Sequence[str], tapes: Mapping[Side, Tape], stated: Sequence[Side]
) -> SettingDifference:
    """The settings of a key that differ, by their own names where a side has what no value of the key stands for."""
    values = {side: {one: tapes[side].settings[one] for one in involved} for side in SIDES}
    known = {side: value_of_key(key, tapes[side].settings) if key in SETTINGS_OF_KEY else "" for side in SIDES}
    name, shown = key, known
    if not all(known.values()):
        name = " and ".join(involved)
        shown = {side: " and ".join(dict.fromkeys(map(in_plain_words, values[side].values()))) for side in SIDES}
    lines = dict[Side, str]()
    for side in SIDES:
        line = next((line for one in involved if (line := tapes[side].set_at.get(one))), "")
        lines |= {side: line} if line and side not in stated else {}
    swapped = f"{key}={known['a']}" if known["a"] else ""
    return SettingDifference(name, values, shown, lines, stated, swapped)


def all_together(differences: Sequence[SettingDifference]) -> SettingDifference:
    """All of them as one, for blocks that none of them explains alone."""
    lines = {side: line for one in reversed(differences) for side, line in one.lines.items()}
    return SettingDifference(
        " and ".join(one.name for one in differences),
        {side: {name: value for one in differences for name, value in one.values[side].items()} for side in SIDES},
        {side: " and ".join(one.shown[side] for one in differences) for side in SIDES},
        lines,
        [side for side in SIDES if any(side in one.stated for one in differences)],
        differences[0].swapped if all(one.swapped for one in differences) else "",
    )


def named_by(culprit: Culprit, difference: SettingDifference, what: str) -> Culprit:
    """The culprit as the setting that it is, with the line that set it in place of that of an op; `what` differs by
    it."""
    line = difference.lines.get("b") or difference.lines.get("a")
    shown: dict[str, str] = dict(difference.shown.items())
    written: dict[str, Sequence[str]] = {
        side: found for side in difference.shown if (found := statements(difference.values[side])) is not None
    }
    lines: dict[str, str] = dict(difference.lines.items())
    named = replace(
        culprit,
        setting=CulpritSetting(difference.name, what, shown, lines, written),
        swapped=difference.swapped or None,
    )
    return named if line is None else replace(named, source=line, frames=())


STATEMENTS: Mapping[str, str] = {
    "threads": "torch.set_num_threads({})",
    "flush_denormal": "torch.set_flush_denormal({})",
    "matmul_precision": "torch.set_float32_matmul_precision({})",
    "cudnn_tf32": "torch.backends.cudnn.allow_tf32 = {}",
    "precision.mkldnn.matmul": "torch.backends.mkldnn.matmul.fp32_precision = {}",
    "precision.mkldnn.conv": "torch.backends.mkldnn.conv.fp32_precision = {}",
    "mkldnn": "torch.backends.mkldnn.enabled = {}",
    "mkldnn_deterministic": "torch.backends.mkldnn.deterministic = {}",
    "cudnn": "torch.backends.cudnn.enabled = {}",
    "cudnn_benchmark": "torch.backends.cudnn.benchmark = {}",
    "cudnn_deterministic": "torch.backends.cudnn.deterministic = {}",
}
"""How a script sets a setting, with its value as Python writes it."""

OF_SWITCH: Mapping[str, Sequence[str]] = {
    "matmul_precision": ("precision.cuda.matmul", "precision.mkldnn.matmul"),
    "cudnn_tf32": ("precision.cuda.conv", "precision.cuda.rnn"),
}
"""What is set with a switch."""


def statements(settings: Mapping[str, Any]) -> list[str] | None:
    """Return the lines by which a script in plain torch sets these; None where there are none for one of them."""
    lines, implied = list[str](), {name for switch in settings for name in OF_SWITCH.get(switch, ())}
    for name, value in settings.items():
        if name in implied:
            continue
        if name == "deterministic":
            lines.append(f"torch.use_deterministic_algorithms({value != 'off'}, warn_only={value == 'warn'})")
        elif name == "precision.cuda.matmul":
            lines.append(f"torch.backends.cuda.matmul.allow_tf32 = {value == TF32}")
        elif name.startswith("reduction."):
            allowed = f"allow_{name.rpartition('.')[2]}_reduced_precision_reduction"
            rounded, _, rest = str(value).partition(" ")
            allows = f"({rounded == 'on'}, False)" if rest == UNSPLIT else f"{rounded == 'on'}"
            lines.append(f"torch.backends.cuda.matmul.{allowed} = {allows}")
        elif name in STATEMENTS:
            lines.append(STATEMENTS[name].format(repr(value)))
        else:
            return None
    return lines
