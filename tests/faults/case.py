"""A case of the benchmark as its file states it, and the modes that it is investigated in.

A case is read without being executed:

    MODELS    scripts of `models/` that it changes
    MODES     modes that it is tried in, by default ("cpu",); CASE is added where it has something to plant
    AGAINST   optional: modes of the unchanged script that are compared with the case, which is the reference then
    REVERSED  optional: the same besides: modes of the unchanged script that are compared with the case in its first mode
    EXPECTED  the verdict against the unchanged script in cpu mode, or in those modes against the case
    HIDDEN    optional: True where the noise of a step may hide what the case does
    CULPRIT   optional: the phase, the kind, the module, the op, the step, the number of places that is to blame; a tuple where a
              case plants several faults at once, which no culprit can be taken for at the same time
    LINE      optional: what stands in the line of a user's file that draws other random numbers, or does not repeat
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAULTS = Path(__file__).parent
CASES = FAULTS / "cases"
MODELS = FAULTS / "models"
BENIGN = "benign"
HARMLESS = ("identical", "rounding")


@dataclass(frozen=True, slots=True)
class Case:
    """One way to change a training. `planted` says whether its code does it, and not its modes alone."""

    path: Path
    summary: str
    models: tuple[str, ...]
    modes: tuple[str, ...]
    against: tuple[str, ...]
    reversed: tuple[str, ...]
    expected: str
    planted: bool
    hidden: bool
    culprits: tuple[Mapping[str, Any], ...]
    line: str = ""

    @property
    def kind(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def benign(self) -> bool:
        return self.kind == BENIGN


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
        said = keys.replace("kernel.", "").replace("=", ".").replace(",", "-")
        bases = {mode.partition(",")[0] for mode in self.case.modes}
        return "-".join([self.case.name, *([base] if len(bases) > 1 or not said else []), *([said] if said else [])])

    @property
    def environment(self) -> dict[str, str]:
        return {"CASE": f"tests/faults/{self.case.path.relative_to(FAULTS)}"} if self.case.planted else {}

    @property
    def spec(self) -> str:
        """The mode in the grammar of the command line."""
        planted = "".join(f",env.{name}={value}" for name, value in self.environment.items())
        return f"{self.name}={self.mode}{planted}"


def read_case(path: Path) -> Case:
    """Read a case's statements about itself. Raises KeyError for one that it lacks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    stated = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    culprit = stated.get("CULPRIT", ())
    return Case(
        path=path,
        summary=ast.get_docstring(tree) or "",
        models=stated["MODELS"],
        modes=stated.get("MODES", ("cpu",)),
        against=stated.get("AGAINST", ()),
        reversed=stated.get("REVERSED", ()),
        expected=stated["EXPECTED"],
        planted=any(isinstance(node, ast.FunctionDef) and node.name == "plant" for node in tree.body),
        hidden=stated.get("HIDDEN", False),
        culprits=(culprit,) if isinstance(culprit, dict) else culprit,
        line=stated.get("LINE", ""),
    )


def all_cases() -> list[Case]:
    return [read_case(path) for path in sorted(CASES.glob("*/*.py"))]


def all_models() -> list[str]:
    return sorted(path.stem for path in MODELS.glob("*.py"))


def trials(model: str) -> list[Trial]:
    """Every trial on `model`."""
    ours = [case for case in all_cases() if model in case.models]
    found = [Trial(case, model, mode, one) for case in ours for mode in case.modes for one in case.against or (None,)]
    return found + [Trial(case, model, case.modes[0], one) for case in ours for one in case.reversed]
