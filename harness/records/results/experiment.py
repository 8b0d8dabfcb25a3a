"""An experiment of an investigation: the run that it repeats, the run it is compared with, and the change it makes.

    Experiment("held", "compile", "cpu", step=12).name     "compile-held-cpu-12"
    experiment_named("compile-held-cpu-12", "cpu", "compile")     the same experiment

The record is written to the `run.json` of the experiment's run. Runs of older versions lack the record: their
experiment is read from the folder's name, which is the experiment's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ..codec import read_fields

Whose = Literal["reference", "each", "mode", "both ways"]
"""The runs of a pair that the experiments of a kind repeat.

reference: the reference; the experiment does not involve the other run
each: each of the two runs; the experiment does not involve the other run
mode: the mode's run, compared with the reference
both ways: each of the two runs, compared with the other one
"""


@dataclass(frozen=True, slots=True)
class ExperimentKind:
    """A kind of experiment: the pattern of its folders' names, and the runs that it repeats.

    folder: the pattern
    whose: the runs
    inquiry: True if the experiment is part of an inquiry into one step (a localization, a search for the step's cut).
        An inquiry and all of its experiments count as one training run. An inquiry concerns only rank 0.
    """

    folder: str
    whose: Whose
    inquiry: bool = False


KINDS: dict[str, ExperimentKind] = {
    # the control, which must repeat the run bit for bit; the reference's control keeps states, outcomes and tapes
    "again": ExperimentKind("{run}-again", "each"),
    # resynced steps: chosen steps, each begun in the reference's state
    "forced": ExperimentKind("{run}-from-{reference}", "mode"),
    # the same steps in a separate run, if the run with these steps cannot also be the control
    "apart": ExperimentKind("{run}-apart-{reference}", "mode"),
    # the same steps once more, compiled as in the mode's own run: to observe calls, graphs are compiled without caches
    "unobserved": ExperimentKind("{run}-unobserved-{reference}", "mode"),
    # chosen steps of a reference that does not repeat, each begun in its state of the first run, with tapes
    "from-itself": ExperimentKind("{run}-from-itself", "reference"),
    # tapes of the suspicious steps; a tape of the step that is localized
    "taped": ExperimentKind("{run}-tape-{number}", "reference"),
    "taped-at": ExperimentKind("{run}-tape-at-{step}", "reference", inquiry=True),
    # steps begun in the reference's states, with parameters moved by one ULP: they measure the noise of steps that
    # cannot be replayed
    "ulp": ExperimentKind("{run}-ulp-{number}", "reference"),
    # a round of further steps between the last step within rounding and the first step beyond rounding
    "onset": ExperimentKind("{run}-onset-{reference}-{number}", "both ways"),
    # steps of the kinds that have no resynced step yet
    "kinds": ExperimentKind("{run}-kinds-{reference}", "both ways"),
    # training runs to the end: with initial parameters moved by one ULP; with different seeds; with the culprits
    # swapped out
    "perturbed": ExperimentKind("{run}-perturbed-{number}", "reference"),
    "seed": ExperimentKind("{run}-seed-{number}", "each"),
    "without": ExperimentKind("{run}-without-{reference}", "mode"),
    # one step, begun in the reference's state, in a process that stays alive as a worker
    "held": ExperimentKind("{run}-held-{reference}-{step}", "mode", inquiry=True),
    # a tape of the graphs that the lazy core executed in one step: in a step of the mode, begun in the reference's
    # state; in the reference's own step
    "executed": ExperimentKind("{run}-executed-{reference}-{step}", "mode", inquiry=True),
    "executed-at": ExperimentKind("{run}-executed-at-{step}", "reference", inquiry=True),
    # one step, begun in the reference's state: of the mode, with a different mark-step policy; of the mode, with a
    # different stage or setting of the compiler; of the reference, with parts of the model on the mode's backend
    "cut": ExperimentKind("{run}-cut-{reference}-{step}-{detail}", "mode", inquiry=True),
    "set": ExperimentKind("{run}-set-{reference}-{step}-{detail}", "mode"),
    "parts": ExperimentKind("{run}-parts-{reference}-{step}-{detail}", "mode"),
    # the first steps, or one step, with every call recorded, for a mode whose runs do not repeat or which draws
    # different random numbers
    "calls": ExperimentKind("{run}-calls-{detail}", "each"),
    # a tape of the script up to its first call of a model
    "prepared": ExperimentKind("{run}-prepared", "each", inquiry=True),
    # the first steps with inputs other than those that numdrift pins: `all` of them, or only the hash seed (`hash`)
    "unpinned": ExperimentKind("{run}-unpinned-{detail}", "reference", inquiry=True),
    # no run: the result of comparing the tapes of two `prepared` experiments
    "traced": ExperimentKind("{run}-traced-{reference}", "mode", inquiry=True),
    # no run: the result of a localization
    "localized": ExperimentKind("{run}-localized-{reference}-{step:06d}", "mode", inquiry=True),
}
"""Every kind of experiment. A question with a new kind of experiment adds a row."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment.

    `run` is the name of the folder of the run that it repeats, `reference` that of the run it is compared with.
    `detail` distinguishes experiments that are otherwise alike: a number, a policy, a setting.
    """

    kind: str
    run: str
    reference: str = ""
    step: int | None = None
    detail: str = ""

    @property
    def name(self) -> str:
        """The name of the experiment's folder, and of the mode that the experiment runs."""
        return KINDS[self.kind].folder.format(
            run=self.run, reference=self.reference, step=self.step, detail=self.detail, number=self.detail
        )

    @property
    def order(self) -> tuple[int, int, str]:
        """The sort key of the experiment among others of its kind."""
        number = int(self.detail) if self.detail.isdigit() else -1
        return (-1 if self.step is None else self.step), number, self.detail

    def concerns(self, a: str, b: str) -> bool:
        """Return whether the experiment belongs to the pair of the reference `a` and the mode `b`."""
        return self.kind in KINDS and (self.run, self.reference) in _of_pair(KINDS[self.kind], a, b)

    @classmethod
    def from_json(cls, content: Any) -> Experiment:
        """Read an experiment. Raises Unreadable."""
        return read_fields(cls, content)


def experiment_named(folder: str, a: str, b: str) -> Experiment | None:
    """Return the experiment of the pair `a` and `b` whose folder has this name, None if there is none."""
    for kind, row in KINDS.items():
        for run, reference in _of_pair(row, a, b):
            match = re.fullmatch(_pattern(row, re.escape(run), re.escape(reference)), folder)
            if match is not None:
                groups = match.groupdict()
                step = groups.get("step")
                detail = groups.get("detail") or groups.get("number") or ""
                return Experiment(kind, run, reference, None if step is None else int(step), detail)
    return None


def belongs_to(folder: str, run: str) -> bool:
    """Return whether this is the name of a folder or file of an experiment that involves the run."""
    this_run, others = re.escape(run), ".+"
    return any(
        re.fullmatch(_pattern(row, *names), folder)
        for row in KINDS.values()
        for names in ((this_run, others), (others, this_run))[: 2 if "{reference}" in row.folder else 1]
    )


def _of_pair(row: ExperimentKind, a: str, b: str) -> Iterator[tuple[str, str]]:
    """Yield the run and the reference of each experiment that a kind can have in a pair."""
    if row.whose == "mode":
        yield b, a
    elif row.whose == "both ways":
        yield from ((a, b), (b, a))
    else:
        yield a, ""
        if row.whose == "each":
            yield b, ""


def _pattern(row: ExperimentKind, run: str, reference: str) -> str:
    """Return the pattern of the names of a kind's folders, given the patterns of the names of `run` and `reference`."""
    parts = {
        "run": run,
        "reference": reference,
        "step": r"(?P<step>\d+)",
        "number": r"(?P<number>\d+)",
        "detail": "(?P<detail>.+)",
    }
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: parts[match[1]], row.folder)
