"""The mode grammar: `[NAME=]BASE[,KEY=VALUE]...`, parsed once into a `ModeSpec`.

    cpu
    lazy,mark_step=step
    bad=cpu,env.FAULT=1
    fast=compile,contract=fast,kernel.tanh_backward=fma
    scalar=compile,inductor.cpp.simdlen=1
    four=cpu,args+=--accum 4
    before=cpu,git=HEAD~1

Parsing needs no torch, so a mistake is found before any process starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from ...errors import ModeError, UsageError, nearest
from ..codec import of_fields, read_fields
from .capabilities import Capabilities
from .execution_keys import EXECUTION_KEYS, WORKERS
from .mode_registry import DEFERRED_DEVICES, registry
from .modes_file import modes_in_file
from .script_words import ARGS, MORE_ARGS, arguments_of, split_pairs, words_of
from .setting_keys import SETTING_KEYS, device_of, refused_setting

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NUMBERED = re.compile(r"([A-Za-z]\w*):\d+")
"""The pattern of a device with its number: `cuda:1`."""

MARK_STEP_POLICIES = ("auto", "phase", "step", "off")
EXECUTIONS = ("graph", "op")
OP_BY_OP = ("eager", "aot_eager", "aot_eager_decomp_partition")
"""Backends of torch.compile that execute the captured code with eager ops."""

INDUCTOR = "inductor"
LADDER = (*OP_BY_OP, INDUCTOR)
"""The backends that add the stages of torch.compile one by one: capture, autograd capture, decomposition, code
generation."""

DTYPES = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class ModeSpec:
    """A mode as the user stated it. A field that is None has the default of the base. `timeout` is in seconds.

    args: the arguments of the script in this mode, instead of those for all modes
    more_args: arguments that are added to them; in the grammar, the key is `args+`
    script: the script of this mode, instead of that of the other modes
    git: the revision of the script's repository
    cwd: the folder in which the script is run
    """

    EMPTY_IS_LEFT_OUT: ClassVar[bool] = True

    name: str
    base: str
    device: str | None = None
    backend: str | None = None
    dtype: str | None = None
    threads: int | None = None
    seed: int | None = None
    contract: str | None = None
    emulate_casts: str | None = None
    fallback_random: str | None = None
    allow_rnn: str | None = None
    graph_cache: str | None = None
    draws: str | None = None
    tf32: str | None = None
    matmul_precision: str | None = None
    sdpa: str | None = None
    cudnn: str | None = None
    mkldnn: str | None = None
    benchmark: str | None = None
    reduced_precision_reduction: str | None = None
    deterministic: str | None = None
    optimizer: str | None = None
    clipping: str | None = None
    zero_grad: str | None = None
    checkpointing: str | None = None
    memory_format: str | None = None
    workers: int | None = None
    dynamic: str | None = None
    mark_step: str | None = None
    execute: str | None = None
    python: str | None = None
    timeout: float | None = None
    script: str | None = None
    git: str | None = None
    cwd: str | None = None
    args: str | None = None
    more_args: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    kernel: Mapping[str, str] = field(default_factory=dict)
    decompose: Mapping[str, str] = field(default_factory=dict)
    inductor: Mapping[str, str] = field(default_factory=dict)

    def with_values(self) -> ModeSpec:
        """Return the mode itself or, if it defers ops, a mode on the CPU with the same ops and kernels."""
        if self.capabilities.has_values:
            return self
        return replace(self, base="cpu", device=None, mark_step=None, execute=None, fallback_random=None, draws=None)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the mode's base."""
        return registry.capabilities(self.base)

    def arguments(self, common: Sequence[str]) -> tuple[str, ...]:
        """Return the arguments of the script in this mode; `common` are those for all modes."""
        return arguments_of(common, self.args, self.more_args)

    @property
    def place(self) -> tuple[str | None, ...]:
        """The keys that decide which files the mode trains, in which folder and with which packages."""
        return self.script, self.git, self.cwd, self.python

    @property
    def is_inductor(self) -> bool:
        """Return whether Inductor generates the mode's code."""
        return self.capabilities.compiles and self.backend in (None, INDUCTOR)

    @property
    def accelerator(self) -> str | None:
        """The accelerator that the mode computes on, with its number if the mode states one; None for the CPU.

        A device that defers ops is not an accelerator in this sense.
        """
        device = self.device or registry.device(self.base)
        return None if device.partition(":")[0] in ("cpu", *DEFERRED_DEVICES) else device

    def to_json(self) -> dict[str, object]:
        """Return the fields that are set, as plain JSON values."""
        return of_fields(self)

    @classmethod
    def from_json(cls, data: Any) -> ModeSpec:
        """Read a mode. Raises Unreadable."""
        return read_fields(cls, data)

    def __str__(self) -> str:
        """Return the specification in the mode grammar, with its keys in the order of the fields."""
        parts = [self.base if self.name == self.base else f"{self.name}={self.base}"]
        for key, value in self.to_json().items():
            if isinstance(value, dict):
                parts += [f"{key}.{name}={setting}" for name, setting in value.items()]
            elif key not in ("name", "base"):
                written = str(value).removesuffix(".0") if isinstance(value, float) else value
                parts.append(f"{MORE_ARGS if key == 'more_args' else key}={written}")
        return ",".join(parts)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError(nearest(value, allowed))
        return value

    return read


def _whole(least: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"\d+", value) or int(value) < least:
            raise ValueError(f"a whole number of at least {least} is needed")
        return int(value)

    return read


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise ValueError("a positive number of seconds is needed")
    return seconds


def _text(value: str) -> str:
    if not value:
        raise ValueError("a value is needed")
    return value


PLAIN_KEYS: Mapping[str, Callable[[str], Any]] = {
    "device": _text,
    "backend": _text,
    "dtype": _one_of(*DTYPES),
    "threads": _whole(1),
    "seed": _whole(0),
    "contract": _one_of("fast", "off"),
    "emulate_casts": _one_of("on", "off"),
    "fallback_random": _one_of("on", "off"),
    "allow_rnn": _one_of("on", "off"),
    "graph_cache": _one_of("on", "off"),
    "draws": _one_of("cpu", "device"),
    **{key: _one_of(*values) for key, values in SETTING_KEYS.items()},
    **{key: _one_of(*values) for key, values in EXECUTION_KEYS.items()},
    WORKERS: _whole(0),
    "dynamic": _one_of("on", "off"),
    "mark_step": _one_of(*MARK_STEP_POLICIES),
    "execute": _one_of(*EXECUTIONS),
    "python": _text,
    "timeout": _seconds,
    "script": _text,
    "git": _text,
    "cwd": _text,
    ARGS: words_of,
    MORE_ARGS: words_of,
}
DOTTED_KEYS: Mapping[str, Callable[[str], str]] = {
    "env": str,
    "kernel": _text,
    "decompose": _one_of("off"),
    "inductor": _text,
}
DOTTED_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@:-]*")


def parse_mode(text: str) -> ModeSpec:
    """Parse one specification.

    Raises ModeError, which quotes the part that is invalid and, if a name is misspelt, suggests the nearest valid name.
    """
    # no value can contain a comma, except the arguments of the script
    head, *pairs = split_pairs(text.strip(), lambda key: key in PLAIN_KEYS or key.partition(".")[0] in DOTTED_KEYS)
    name, equals, base = head.partition("=")
    name, base = (name.strip(), base.strip()) if equals else (name.strip(), name.strip())
    device = None
    if (numbered := NUMBERED.fullmatch(base)) and numbered[1] in registry.names():
        # `cuda:1` means `cuda,device=cuda:1`, with a name (`cuda1`) that a folder can have
        device, base = base, numbered[1]
        name = name if equals else device.replace(":", "")
    if not base:
        raise ModeError(text, head, "no base is given; the form is [NAME=]BASE[,KEY=VALUE]...")
    if base not in registry.names():
        raise ModeError(text, base, f"there is no mode {base!r}; {nearest(base, registry.names())}")
    if not NAME.fullmatch(name):
        raise ModeError(
            text,
            name,
            f"{name!r} is not a valid name: use letters, digits, '.', '_' and '-', beginning with a letter or digit",
        )
    values: dict[str, Any] = {group: {} for group in DOTTED_KEYS}
    if device is not None:
        values["device"] = device
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        group, dot, inner = key.partition(".")
        if not equals:
            raise ModeError(text, pair, f"{pair!r} is not KEY=VALUE")
        # a value may contain `=` (env.X=a=b), a key may not
        valid_keys = [*PLAIN_KEYS, *(f"{name}.<NAME>" for name in DOTTED_KEYS)]
        dotted = bool(dot) and group in DOTTED_KEYS
        if not dotted and key not in PLAIN_KEYS:
            raise ModeError(text, key, f"there is no key {key!r}; {nearest(key, valid_keys)}")
        if dotted and not DOTTED_NAME.fullmatch(inner):
            raise ModeError(text, key, f"{key!r} lacks a name; write {group}.NAME=VALUE")
        bases = registry.bases_of_key(group if dotted else key)
        if bases and base not in bases:
            raise ModeError(text, key, f"key {key!r} belongs to {' and '.join(bases)}, not to {base}")
        # `env.A` and `env.B` are entries of one field, `seed` is a field
        target, entry = (values[group], inner) if dotted else (values, "more_args" if key == MORE_ARGS else key)
        if entry in target:
            raise ModeError(text, key, f"key {key!r} is given twice")
        try:
            target[entry] = (DOTTED_KEYS[group] if dotted else PLAIN_KEYS[key])(value)
        except ValueError as wrong:
            raise ModeError(text, pair, f"{key}={value!r}: {wrong}") from None
    refused = refused_setting(values, device_of(base, values.get("device")))
    if refused is not None:
        raise ModeError(text, *refused)
    return ModeSpec(name=name, base=base, **values)


def parse_modes(listed: str | None, single: Sequence[str] = ()) -> list[ModeSpec]:
    """Parse `--modes` (plain bases, separated by commas) and each `--mode`, in this order. `@FILE` represents the
    modes of a TOML file.

    Raises UsageError if there is no mode or a name occurs twice, and ModeError for an invalid specification.
    """
    texts = [part.strip() for part in listed.split(",")] if listed is not None else []
    if listed is not None and not all(texts):
        raise UsageError(f"--modes {listed!r} has an empty entry; name modes, as in --modes cpu,compile,lazy")
    for text in single:
        texts += modes_in_file(Path(text[1:])) if text.startswith("@") else [text]
    specs = [parse_mode(text) for text in texts]
    if not specs:
        raise UsageError("no mode is named; name some, as in --modes cpu,compile,lazy")
    names: set[str] = set()
    for spec in specs:
        if spec.name in names:
            raise UsageError(f'two modes are named {spec.name!r}: rename one, as in --mode "other={spec.base},..."')
        names.add(spec.name)
    return specs
