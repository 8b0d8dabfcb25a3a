"""The settings of torch that differ between the sides of a step, as keys of a mode and as statements of a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...errors import NumdriftError
from ...records.modes.mode_spec import ModeSpec, parse_mode
from ...records.modes.setting_keys import SETTING_KEYS, device_of, refused_setting
from ...records.results.culprit import Culprit, CulpritSetting
from ...tape.stated_settings import ALSO_SET, SETTINGS_OF_KEY, in_plain_words, same_value, value_of_key
from ...tape.tape import Tape
from ...torch_private.kernel_settings import TF32, UNSPLIT
from ..align.storage_flow import SIDES, Side


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting whose value or effect differs between the sides.

    If both sides have the same value, it has an effect only on side b's device. Then side a's `values` are those that
    switch the effect off, and `shown` has no entry for side a.

    name: a key of a mode, or the name of the setting on the tape.
    values: by side, the values of all settings of torch that the key represents.
    shown: by side, the value of the key or setting in words.
    lines: by side, the line of the script that changed the setting, if there is one.
    stated: the sides whose mode states the setting.
    swapped: the part of a mode's specification that states side a's values of all settings that differ, not only of
        this one, because a setting that is off may hide the effects of others.
    """

    name: str
    values: Mapping[Side, Mapping[str, Any]]
    shown: Mapping[Side, str]
    lines: Mapping[Side, str]
    stated: Sequence[Side] = ()
    swapped: str = ""


def setting_differences(tapes: Mapping[Side, Tape], specs: Mapping[Side, str]) -> list[SettingDifference]:
    """Return the settings that differ between the sides, grouped by the keys of a mode that represent them.

    Settings that a mode states come first; `specs` are the modes' specifications. A key without an effect on the
    modes' devices is left out.
    """
    settings = {side: tapes[side].settings for side in SIDES}
    names = [name for name in settings["a"] if name in settings["b"]]
    remaining = {name: None for name in names if not same_value(settings["a"][name], settings["b"][name])}
    modes = {side: mode for side in SIDES if (mode := _mode(specs[side])) is not None}
    stated = {key: [side for side in modes if getattr(modes[side], key) is not None] for key in SETTINGS_OF_KEY}
    differences, differing = list[SettingDifference](), list(remaining)
    for key in sorted(SETTINGS_OF_KEY, key=lambda key: not stated[key]):  # the sort is stable
        involved = [name for name in SETTINGS_OF_KEY[key] if name in differing]
        also = [name for name in ALSO_SET.get(key, ()) if name in remaining] if involved else []
        involved += also
        differing = [name for name in differing if name not in also]
        for name in involved:
            remaining.pop(name, None)
        if involved and not (len(modes) == len(SIDES) and all(_is_idle(key, mode) for mode in modes.values())):
            differences.append(_difference(key, involved, tapes, stated[key]))
    differences += [_difference(name, [name], tapes, ()) for name in remaining]
    swapped = ",".join(difference.swapped for difference in differences if difference.swapped)
    return [replace(difference, swapped=swapped if difference.swapped else "") for difference in differences]


EXACTLY: Mapping[str, str] = {"tf32": "ieee", "reduced_precision_reduction": "off"}
"""The keys that allow an accelerator to round more than the dtypes of ops require, with the value that forbids it."""


def liberties(tape: Tape, spec: str) -> list[SettingDifference]:
    """Return the settings that allow side b's device to round more than the dtypes of the ops require, by key."""
    mode, allowed = _mode(spec), list[SettingDifference]()
    for key, exact in EXACTLY.items():
        allowing = {name: str(tape.settings.get(name, exact)) for name in SETTINGS_OF_KEY[key]}
        allowing.pop("cudnn_tf32", None)  # its only effect is to set other settings (see OF_SWITCH)
        allowing = {name: value for name, value in allowing.items() if not same_value(value.partition(" ")[0], exact)}
        if not allowing:
            continue
        without = dict.fromkeys(allowing, exact)
        line = next((line for name in allowing if (line := tape.set_at.get(name))), "")
        shown = value_of_key(key, tape.settings) or "on"
        stated: list[Side] = ["b"] if mode is not None and getattr(mode, key) is not None else []
        lines: dict[Side, str] = {"b": line} if line and not stated else {}
        allowed.append(SettingDifference(key, {"a": without, "b": allowing}, {"b": shown}, lines, stated, f"{key}=off"))
    return allowed


def _mode(spec: str) -> ModeSpec | None:
    with suppress(NumdriftError):
        return parse_mode(spec)
    return None


def _is_idle(key: str, mode: ModeSpec) -> bool:
    """Check that no value of a key has an effect on the device of a mode."""
    device = device_of(mode.base, mode.device)
    values = SETTING_KEYS.get(key, ())
    return bool(values) and all(refused_setting({key: value}, device) is not None for value in values)


def _difference(
    key: str, involved: Sequence[str], tapes: Mapping[Side, Tape], stated: Sequence[Side]
) -> SettingDifference:
    """Return the differing settings of a key as one difference.

    If no value of the key represents a side's settings, the difference has torch's names of the settings.
    """
    values = {side: {setting: tapes[side].settings[setting] for setting in involved} for side in SIDES}
    key_values = {side: value_of_key(key, tapes[side].settings) if key in SETTINGS_OF_KEY else "" for side in SIDES}
    name, shown = key, key_values
    if not all(key_values.values()):
        name = " and ".join(involved)
        shown = {side: " and ".join(dict.fromkeys(map(in_plain_words, values[side].values()))) for side in SIDES}
    lines = dict[Side, str]()
    for side in SIDES:
        line = next((line for setting in involved if (line := tapes[side].set_at.get(setting))), "")
        lines |= {side: line} if line and side not in stated else {}
    swapped = f"{key}={key_values['a']}" if key_values["a"] else ""
    return SettingDifference(name, values, shown, lines, stated, swapped)


def all_together(differences: Sequence[SettingDifference]) -> SettingDifference:
    """Join all differences into one, for blocks that none of them explains alone."""
    lines = {side: line for difference in reversed(differences) for side, line in difference.lines.items()}
    return SettingDifference(
        " and ".join(difference.name for difference in differences),
        {
            side: {name: value for difference in differences for name, value in difference.values[side].items()}
            for side in SIDES
        },
        {side: " and ".join(difference.shown[side] for difference in differences) for side in SIDES},
        lines,
        [side for side in SIDES if any(side in difference.stated for difference in differences)],
        differences[0].swapped if all(difference.swapped for difference in differences) else "",
    )


def named_by(culprit: Culprit, difference: SettingDifference, what: str) -> Culprit:
    """Return the culprit described as a setting. The line of the script that changed the setting replaces the op's
    line.

    `what` names the calls that differ because of the setting.
    """
    line = difference.lines.get("b") or difference.lines.get("a")
    shown: dict[str, str] = dict(difference.shown.items())
    written: dict[str, Sequence[str]] = {
        side: code for side in difference.shown if (code := statements(difference.values[side])) is not None
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
    "fill_uninitialized_memory": "torch.utils.deterministic.fill_uninitialized_memory = {}",
    "attention.flash": "torch.backends.cuda.enable_flash_sdp({})",
    "attention.efficient": "torch.backends.cuda.enable_mem_efficient_sdp({})",
    "attention.math": "torch.backends.cuda.enable_math_sdp({})",
    "attention.cudnn": "torch.backends.cuda.enable_cudnn_sdp({})",
}
"""The statement with which a script sets each setting; `{}` takes the value as a Python literal."""

OF_SWITCH: Mapping[str, Sequence[str]] = {
    "matmul_precision": ("precision.cuda.matmul", "precision.mkldnn.matmul"),
    "cudnn_tf32": ("precision.cuda.conv", "precision.cuda.rnn"),
}
"""By the name of a setting, the other settings that it sets."""


def statements(settings: Mapping[str, Any]) -> list[str] | None:
    """Return the lines of a script in plain torch that set these settings; None if one of them has no statement."""
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
            rounded, _, qualifier = str(value).partition(" ")
            allows = f"({rounded == 'on'}, False)" if qualifier == UNSPLIT else f"{rounded == 'on'}"
            lines.append(f"torch.backends.cuda.matmul.{allowed} = {allows}")
        elif name in STATEMENTS:
            lines.append(STATEMENTS[name].format(repr(value)))
        else:
            return None
    return lines
