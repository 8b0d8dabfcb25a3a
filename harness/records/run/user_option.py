"""Options for users, each declared with the field of a request that it sets.

    limit: int = option(256 * MEBIBYTE, "The largest trace of a mode.", in_bytes, written=256.0, least=0, metavar="MIB")

This field provides `--limit MIB` on the command line and a parameter `limit=256.0` in Python. Both read the user's
value with `in_bytes`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from ...errors import UsageError
from .step_selection import SPIKES, StepSelection

MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class UserOption:
    """The option with which users set a field.

    default: the option's default as users write it
    read: converts the user's value to the field's value; the default is not converted
    name: the option's name in Python
    flag: the option's flags on the command line
    kind: the type of the user's value
    least: the smallest value that an int may have; a float must be greater than `least`
    metavar, choices, shows_default: for the help on the command line
    variable: an environment variable that sets the option too
    """

    default: Any
    help: str
    read: Callable[[Any], Any]
    name: str = ""
    flag: str = ""
    kind: type = str
    least: int | None = None
    metavar: str | None = None
    choices: Sequence[str] = ()
    variable: str | None = None
    shows_default: bool = False

    def value(self, written: Any) -> Any:
        """Return the field's value for a user's value that is not the default. Raises UsageError."""
        if self.least is not None and written is not None:
            if self.kind is int and written < self.least:
                raise UsageError(f"{self.flag} {written} is too small; the minimum is {self.least}")
            if self.kind is float and not written > self.least:
                raise UsageError(f"{self.flag} {written} must be greater than {self.least}")
        return self.read(written)


def option(
    default: Any,
    help: str,
    read: Callable[[Any], Any] = lambda value: value,
    *,
    written: Any = MISSING,
    kind: type | None = None,
    **facts: Any,
) -> Any:
    """Return a field of a request that users may set.

    `written` is the default as users write it, if it differs from the field's default. `kind` is the type of the value
    that users write, if it differs from the type of that default. `facts` are further fields of the `UserOption`. An
    option without a `name` has the field's name, and an option without a `flag` has a flag derived from its name.
    """
    written = default if written is MISSING else written
    kind = kind or (str if written is None else type(written))
    metadata = {"option": UserOption(written, help, read, kind=kind, **facts)}
    return (
        field(default_factory=dict, metadata=metadata) if default == {} else field(default=default, metadata=metadata)
    )


def options_of(request: Any) -> Mapping[str, UserOption]:
    """Return the users' options of a request, by the name of the field that each sets, in the order of the fields."""
    options = {}
    for item in fields(request):
        if "option" in item.metadata:
            declared: UserOption = item.metadata["option"]
            name = declared.name or item.name
            flag = declared.flag or f"--{name.replace('_', '-')}"
            options[item.name] = replace(declared, name=name, flag=flag)
    return options


def read_options(request: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that these values of options set. An option that has its default or belongs to a
    different request sets no field. Raises UsageError for a value that cannot be read."""
    return {
        field_name: declared.value(values[declared.name])
        for field_name, declared in options_of(request).items()
        if declared.name in values and values[declared.name] != declared.default
    }


def option_words(options: Sequence[tuple[UserOption, Any]]) -> Iterator[str]:
    """Yield the words that set options on the command line to values as users write them."""
    for option, value in options:
        positive, slash, negative = option.flag.partition("/")
        flag = positive.split()[-1]
        if option.kind is bool:
            if value or slash:
                yield flag if value else negative
        else:
            yield from (flag, str(value))


def selection(flag: str, remedy: str, every: str | None = None) -> Callable[[str], StepSelection]:
    """Return a function that reads steps, or other numbered things, from the text of an option.

    The function refuses an empty text, with `remedy` in the message. `every` is the text that selects all of them.
    """

    def read(text: str) -> StepSelection:
        if not text.strip():
            raise UsageError(f"{flag} names {remedy}")
        try:
            return StepSelection() if text == every else numbered(text)
        except UsageError as error:  # the message names --steps in place of this option
            raise UsageError(str(error).replace("--steps", flag, 1)) from None

    return read


def numbered(text: str) -> StepSelection:
    """Read steps that are known in advance. Raises UsageError, also for the steps around a spike of the loss."""
    chosen = StepSelection.parse(text)
    if chosen.spikes:
        raise UsageError(f"--steps {text!r}: {SPIKES} selects only the steps that `numdrift run` records; leave it out")
    return chosen


def share(flag: str) -> Callable[[str], float]:
    """Return a function that reads a share of the time, such as `3%`, as a number between 0 and 1."""

    def read(text: str) -> float:
        number = text.strip().removesuffix("%").strip()
        try:
            percent = float(number)
        except ValueError:
            percent = math.nan
        if not 0 < percent <= 100:
            raise UsageError(f"{flag} {text!r} is not a share of the time; write a percentage, as in {flag} 3%")
        return percent / 100

    return read


def in_bytes(mebibytes: float) -> int:
    return int(mebibytes * MEBIBYTE)


def step_count(value: int | str) -> int:
    """Read a number of steps from Python or from the command line."""
    if not str(value).isdecimal() or not int(value):
        raise UsageError(f"--max-steps {value} is not a number of steps; the minimum is 1")
    return int(value)


def positive_seconds(flag: str, unlimited: str | None = None) -> Callable[[float | str], float]:
    """Return a function that reads a time in seconds from Python or from the command line.

    `unlimited` is the word for an infinite time, if the option allows one.
    """

    def read(value: float | str) -> float:
        if unlimited is not None and value in (unlimited, math.inf):
            return math.inf
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not (seconds > 0 and math.isfinite(seconds)):
            no_limit = f", or {unlimited}" if unlimited is not None else ""
            raise UsageError(f"{flag} {value} is not a positive number of seconds{no_limit}")
        return seconds

    return read
