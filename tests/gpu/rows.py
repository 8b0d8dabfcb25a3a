"""What a row of `scripts/gpu` is: an investigation with what is expected of it, or a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

REPRODUCER, TRAINING, FAULT, UNREPEATABLE, SETTING, NONFINITE, OTHER = (
    "reproducers",
    "trainings",
    "planted faults",
    "what does not repeat",
    "settings",
    "nonfinite",
    "other",
)
"""Groups of rows, in the order in which they are shown."""

QUIET = ("identical", "rounding")
"""Verdicts of a pair in which nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Script:
    """A training script, and how a plain start tells it its device."""

    path: str
    device_option: bool = False

    def bare(self, device: str) -> tuple[list[str], dict[str, str]]:
        """Return the arguments and variables by which the script trains on a device without numdrift."""
        return (["--device", device], {}) if self.device_option else ([], {"DEVICE": device})


@dataclass(frozen=True, slots=True)
class ExpectedCause:
    """A cause: an op by what stands in its name, with what stands in its line, or a setting by its key."""

    op: str = ""
    line: str = ""
    setting: str = ""

    def __str__(self) -> str:
        if self.setting:
            return f"the setting {self.setting}"
        return f"{self.op} at `{self.line}`" if self.line else self.op


@dataclass(frozen=True, slots=True)
class Investigation:
    """A row that is investigated.

    `modes` are in numdrift's grammar, but for two bases: `cuda` is the device that the list runs on, and `compile@cuda` is
    torch.compile on it. `causes` are those of which the first proven one has to be; empty where any will do. `said` is what
    the verdict's sentence has to hold. `within` are times of the bare trainings, and seconds, that it may take. `needs` are
    words of `needs.py`.
    """

    name: str
    group: str
    what: str
    script: Script
    modes: Sequence[str]
    verdicts: Sequence[str] = QUIET
    causes: Sequence[ExpectedCause] = ()
    said: str = ""
    arguments: Sequence[str] = ()
    options: Sequence[str] = ("--no-confirm",)
    within: tuple[float, float] | None = None
    needs: Sequence[str] = ()
    limit: float = 240.0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """A row that is not an investigation. `function` is the name of one of `measurements.py`; `alone` rows run when all others
    have ended, one after the other."""

    name: str
    what: str
    modes: Sequence[str]
    expected: str
    function: str
    needs: Sequence[str] = ()
    limit: float = 120.0
    alone: bool = False
    group: str = OTHER


Row = Investigation | Measurement


@dataclass(frozen=True, slots=True)
class Bare:
    """A training without numdrift, which several rows may have as one of theirs: `modes` of it are alike."""

    script: Script
    arguments: Sequence[str]
    device: str
    compiled: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its name in the results."""
        how = f"{'compile@' if self.compiled else ''}{self.device}"
        stated = [f"{name}={value}" for name, value in sorted(self.variables.items())]
        return " ".join([self.script.path, *self.arguments, how, *stated])

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the arguments of Python, and the variables."""
        words, variables = self.script.bare(self.device)
        compiled = ["--compile"] if self.compiled else []
        return [self.script.path, *self.arguments, *words, *compiled], {**variables, **self.variables}
