"""The findings of one step: its causes, their proofs, and the drift that is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...records.results.culprit import Culprit
from ...records.results.localization_record import LeftOver
from ..align.storage_flow import Side
from ..execute.tape_pair import TapePair
from ..execute.verification import Found
from .choices import ChosenDrift
from .examination import Examined
from .proofs import Proofs
from .site_causes import Cause


@dataclass(frozen=True, slots=True, eq=False)
class UnprovenCauses:
    """The causes of a step as culprits without proofs, with the examination of their blocks."""

    pair: TapePair
    kernels: Mapping[Side, Found]
    examined: Mapping[int, Examined]
    culprits: Sequence[Culprit]


@dataclass(slots=True, eq=False)
class LocalizedStep:
    """The findings of one step.

    controls: for each side, True if its tape, executed in this process, reproduces the recorded values.
    control_scores: for each side, the distance of that execution from the recorded values, as a multiple of the
        reference's rounding noise; infinite if whole numbers differ.
    """

    pair: TapePair
    controls: Mapping[Side, bool]
    control_scores: Mapping[Side, float]
    kernels: Mapping[Side, Found]
    examined: Mapping[int, Examined]
    causes: list[Cause]
    proofs: Proofs
    culprits: list[Culprit]
    chosen: ChosenDrift | None
    left: LeftOver
    notes: list[str] = field(default_factory=list)
