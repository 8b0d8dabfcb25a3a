"""A case of the benchmark, how its family declares it, and the modes that it is investigated in.

A module of `cases` is a family of cases: functions that change a training, each with what is expected of it, and modes that
need no change. What a declaration says:

    models    scripts of `models/` that it changes
    modes     modes that it is tried in, by default ("cpu",); CASE is added where it has something to plant
    against   modes of the unchanged script that are compared with the case, which is the reference then
    reversed  the same besides: modes of the unchanged script that are compared with the case in its first mode
    expected  the verdict against the unchanged script in cpu mode, or in those modes against the case
    hidden    True where the noise of a step may hide what the case does
    culprit   the phase, the kind, the module, the op, the step, the number of places that is to blame; a tuple where a
              case plants several faults at once, which no culprit can be taken for at the same time
    line      what stands in the line of a user's file that draws different random numbers, or does not repeat
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .training import Training

FAULTS = Path(__file__).parent
MODELS = FAULTS / "models"
BENIGN = "benign"
HARMLESS = ("identical", "rounding")

Fault = Mapping[str, Any]
"""What a case says of its culprit."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to change a training. `plant` changes it, and is None where the case's modes alone do. `family` is the module of
    `cases` that declares it."""

    kind: str
    name: str
    summary: str
    models: tuple[str, ...]
    modes: tuple[str, ...] = ("cpu",)
    against: tuple[str, ...] = ()
    reversed: tuple[str, ...] = ()
    expected: str = "beyond-rounding"
    hidden: bool = False
    culprits: tuple[Fault, ...] = ()
    line: str = ""
    family: str = ""
    plant: Callable[[Training], None] | None = None

    @property
    def benign(self) -> bool:
        return self.expected in HARMLESS


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases of a family, which a module declares. All are of one kind."""

    kind: str
    module: str
    expected: str = "beyond-rounding"
    by_name: dict[str, Case] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.module.rpartition(".")[2]

    def planted(self, **stated: Any) -> Callable[[Callable[[Training], None]], Callable[[Training], None]]:
        """Declare a function as a case, by its name and its docstring."""

        def declare(plant: Callable[[Training], None]) -> Callable[[Training], None]:
            self._add(plant.__name__, inspect.getdoc(plant) or "", plant, **stated)
            return plant

        return declare

    def of_modes(self, name: str, summary: str, **stated: Any) -> None:
        """Declare a case whose modes change the training, and nothing else."""
        self._add(name, summary, None, **stated)

    def _add(
        self, name: str, summary: str, plant: Callable[[Training], None] | None, culprit: Any = (), **stated: Any
    ) -> None:
        if name in self.by_name:
            raise ValueError(f"there are two cases {name!r} in {self.family}")
        culprits = (culprit,) if isinstance(culprit, dict) else culprit
        fields = {"expected": self.expected, **stated}
        self.by_name[name] = Case(
            self.kind, name, summary, **fields, culprits=culprits, family=self.family, plant=plant
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """A case on one model in one mode: one pair of an investigation. The case is the reference where it says `against` which
    mode of the unchanged script."""

    case: Case
    model: str
    mode: str
    against: str | None = None

    @property
    def name(self) -> str:
        """The mode's name: that of the case, and in what its modes differ where it has several."""
        if self.against is not None:
            return f"{self.case.name}-against-{self.against}"
        if len(self.case.modes) == 1:
            return self.case.name
        base, _, keys = self.mode.partition(",")
        settings = keys.replace("kernel.", "").replace("=", ".").replace(",", "-")
        bases = {mode.partition(",")[0] for mode in self.case.modes}
        return "-".join(
            [self.case.name, *([base] if len(bases) > 1 or not settings else []), *([settings] if settings else [])]
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"CASE": f"{self.case.family}/{self.case.name}"} if self.case.plant else {}

    @property
    def spec(self) -> str:
        """The mode in the grammar of the command line."""
        planted = "".join(f",env.{name}={value}" for name, value in self.environment.items())
        return f"{self.name}={self.mode}{planted}"


def cases_of(family: str) -> Mapping[str, Case]:
    """Import the family's module and return its cases by name."""
    cases: Cases = importlib.import_module(f"{__package__}.cases.{family}").CASES
    return cases.by_name


def all_cases() -> list[Case]:
    families = [path.stem for path in (FAULTS / "cases").glob("*.py")]
    return sorted(
        (case for family in families for case in cases_of(family).values()), key=lambda case: (case.kind, case.name)
    )


def all_models() -> list[str]:
    return sorted(path.stem for path in MODELS.glob("*.py"))


def trials(model: str) -> list[Trial]:
    """Every trial on `model`."""
    cases = [case for case in all_cases() if model in case.models]
    found = [
        Trial(case, model, mode, side) for case in cases for mode in case.modes for side in case.against or (None,)
    ]
    return found + [Trial(case, model, case.modes[0], side) for case in cases for side in case.reversed]
