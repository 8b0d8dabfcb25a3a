"""The script's own changes of the settings of torch's kernels.

They are recorded with their lines. A setting that the mode states is changed back to the mode's value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..records.modes.mode_spec import ModeSpec
from ..records.run.adoption_facts import AdoptionFacts
from ..tape.origin import script_line
from ..tape.stated_settings import in_key_words, put_stated, same_value, stated_settings
from ..tape.step_settings import read_settings, setting_lines
from ..torch_private.kernel_settings import setters
from ..torch_private.patches import Patches

KEYS_OF_SETTER = {"_set_cublas_allow_tf32": ("tf32",), "_set_float32_matmul_precision": ("matmul_precision",)}
"""For functions that change the settings of several keys: the keys under which a call of the function is reported."""


class FollowedSettings:
    """Observes the functions with which a script changes settings of torch's kernels, from `install` to `close`."""

    def __init__(self, spec: ModeSpec, script: str, facts: AdoptionFacts) -> None:
        self._spec = spec
        self._script = script
        self._facts = facts
        self._stated = stated_settings(spec)
        self._first: Mapping[str, Any] = {}
        self._reported: set[tuple[object, ...]] = set()
        self._patches = Patches("the script's settings")
        self._acting = self._silent = False

    def install(self) -> None:
        """Start observing. Call this after the mode has applied its settings."""
        self._first = read_settings()
        setting_lines.lines.clear()
        with self._patches as patches:
            for setter in setters():
                keys = KEYS_OF_SETTER.get(setter.name, ())
                patches.wrap(setter.holder, setter.name, functools.partial(self._following, setter.changes, keys))

    def forget(self) -> None:
        """Stop observing. Called in a fork of the recorded process, which may change any setting."""
        self._silent = True

    def close(self) -> None:
        """Stop observing, and stop changing settings back: code after the script may change any setting."""
        self._patches.undo()

    def _following(self, names: Sequence[str], keys: Sequence[str], setter: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(setter)
        def followed(*args: Any, **kwargs: Any) -> Any:
            if self._acting or self._silent:
                return setter(*args, **kwargs)
            self._acting = True
            try:
                before = read_settings(names)
                result = setter(*args, **kwargs)
                after = read_settings(names)
                changed = {name: after[name] for name in after if not same_value(before.get(name), after[name])}
                if changed:
                    self._changed(changed, keys)
                return result
            finally:
                self._acting = False

        return followed

    def _changed(self, changed: Mapping[str, Any], keys: Sequence[str]) -> None:
        overruled = [name for name in changed if any(name in names for names in self._stated.values())]
        line = script_line(self._script) or ""
        report = (line, *changed.items())
        is_back = not overruled and all(same_value(self._first.get(name), value) for name, value in changed.items())
        is_left = is_back and all(setting_lines.lines.get(name) == line for name in changed)  # the end of a `with`
        if not is_left and report not in self._reported:  # a `with` in a forward repeats its change in each step
            self._reported.add(report)
            text = ", ".join(in_key_words(changed, read_settings(), keys))
            stated = [
                f"{key}={getattr(self._spec, key)}"
                for key, names in self._stated.items()
                if not set(names).isdisjoint(overruled)
            ]
            self._facts.note(
                "settings", f"{text}, overridden by the mode's {', '.join(stated)}" if stated else text, line
            )
        if overruled:
            put_stated(self._spec)
        for name in changed:
            if name not in overruled:
                setting_lines.note(name, "" if is_back else line)
