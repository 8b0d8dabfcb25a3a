"""The selection of the steps that are recorded in detail, and of the steps whose parameter values are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import UsageError

RANGE = re.compile(r"(\d{1,18})(?:-(\d{0,18})(?:/([1-9]\d{0,17}))?)?")

SPIKES = "spikes"


@dataclass(frozen=True, slots=True)
class StepSelection:
    """Steps as inclusive ranges (first, last); `last` is None for a range without an end. No ranges mean every step.

    The text of a selection is, for example, `0,5,10-19,100-`. Steps are counted from 0. A long training is recorded
    with a schedule, such as `0-99,100-/100`: every step of the first 100, then each 100th.

    spaced: ranges (first, last, distance) of which only the first step, and each that is a multiple of the distance
        after it, is selected
    spikes: whether the steps around a spike of the loss are selected, too. They are known only afterwards, so they are
        not `in` the selection. As text this is `spikes`.
    """

    ranges: tuple[tuple[int, int | None], ...] = ()
    spaced: tuple[tuple[int, int | None, int], ...] = ()
    spikes: bool = False

    def __contains__(self, step: object) -> bool:
        if self.is_everything:
            return True
        return isinstance(step, int) and (
            any(first <= step and (last is None or step <= last) for first, last in self.ranges)
            or any(
                first <= step and (last is None or step <= last) and (step - first) % distance == 0
                for first, last, distance in self.spaced
            )
        )

    @property
    def is_everything(self) -> bool:
        """True for the selection without ranges, which selects every step."""
        return not self.ranges and not self.spaced and not self.spikes

    @property
    def last(self) -> int | None:
        """The last selected step, None for a selection without an end."""
        ends = [last for _, last in self.ranges]
        for first, last, distance in self.spaced:
            ends.append(None if last is None else last - (last - first) % distance)
        endless = not ends or None in ends or self.spikes
        return None if endless else max(last for last in ends if last is not None)

    def covers(self, selection: StepSelection) -> bool:
        """Return whether each range of `selection` is within one range of this selection."""
        if self.is_everything or selection.is_everything:
            return self.is_everything
        if selection.spikes and not self.spikes:
            return False
        return all(self._has_range(first, last) for first, last in selection.ranges) and all(
            entry in self.spaced or self._has_range(*entry[:2]) for entry in selection.spaced
        )

    def _has_range(self, first: int, last: int | None) -> bool:
        return any(begin <= first and (end is None or (last is not None and last <= end)) for begin, end in self.ranges)

    def __str__(self) -> str:
        parts = []
        for first, last in self.ranges:
            parts.append(str(first) if first == last else f"{first}-{'' if last is None else last}")
        for first, last, distance in self.spaced:
            parts.append(f"{first}-{'' if last is None else last}/{distance}")
        return ",".join([*parts, *([SPIKES] if self.spikes else [])])

    @classmethod
    def of(cls, steps: Iterable[int]) -> StepSelection:
        """Select exactly these steps; an empty iterable selects every step."""
        return cls(tuple((step, step) for step in sorted(steps)))

    @classmethod
    def parse(cls, text: str) -> StepSelection:
        """Read a selection; the empty text selects every step. Raises UsageError."""
        ranges: list[tuple[int, int | None]] = []
        spaced: list[tuple[int, int | None, int]] = []
        spikes = False
        for part in text.split(",") if text.strip() else []:
            if part.strip() == SPIKES:
                spikes = True
                continue
            match = RANGE.fullmatch(part.strip())
            if match is None:
                raise UsageError(
                    f"--steps {text!r}: {part.strip()!r} is not a step; steps are numbered from 0, as in 0,5,10-19 or "
                    "100-/100 (each 100th step from step 100 on), or spikes (the steps around a spike of the loss)"
                )
            # a number of 18 digits fits into the 64 bits that a frame has for its step
            first = int(match[1])
            last = first if match[2] is None else (int(match[2]) if match[2] else None)
            if last is not None and last < first:
                ordered = f"{last}-{first}" + (f"/{match[3]}" if match[3] else "")
                raise UsageError(f"--steps {text!r}: {part.strip()!r} runs backwards; write {ordered}")
            if match[3]:
                spaced.append((first, last, int(match[3])))
            else:
                ranges.append((first, last))
        return cls(tuple(ranges), tuple(spaced), spikes)

    to_json, from_json = __str__, parse


@dataclass(frozen=True, slots=True)
class KeepParams:
    """The steps whose parameter values are kept: one in `every` steps, beginning with step 0, and always the last step.

    As text this is `all` (every=1), `last` (every=0: only the last step) or `every=N`.
    """

    every: int = 1

    def __str__(self) -> str:
        return {0: "last", 1: "all"}.get(self.every, f"every={self.every}")

    @classmethod
    def parse(cls, text: str) -> KeepParams:
        """Read a policy. Raises UsageError."""
        if text in ("all", "last"):
            return cls(1 if text == "all" else 0)
        match = re.fullmatch(r"every=([1-9]\d{0,17})", text)
        if match is None:
            raise UsageError(f"--keep-params {text!r}: write all, last or every=N, where N is at least 1")
        return cls(int(match[1]))

    to_json, from_json = __str__, parse
