"""The list run once: rows side by side, then those that have to be alone, each kept as soon as it is done."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from .commands import Commands
from .device import COMPILED, opened
from .evidence import Evidence
from .laboratory import Laboratory
from .needs import told_at_once
from .outcome import Results, ResultsFile
from .rows import Bare, Investigation, Row
from .shown import line_of
from .worker import outcome_of, plain

FOR_ALONE = 170.0
"""Seconds of the whole that are kept for the rows that run alone."""

BARE_LIMIT = 90.0

COMPILERS = "4"
"""Processes in which each training has Inductor compile; by default it takes as many as there are cores."""


@dataclass(frozen=True, slots=True)
class Round:
    """Where the results go, and when it began."""

    file: ResultsFile
    evidence: Evidence
    began: float

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 1)

    def say(self, text: str) -> None:
        print(f"[{self.seconds:4.0f} s] {text}", flush=True)

    def keep(self, lab: Laboratory, row: Row) -> None:
        """Run a row, and keep what came out."""
        outcome, said = outcome_of(lab, row)
        self.file.add(outcome, self.seconds)
        self.evidence.add(row.name, said, lab.folder / row.name, wrong=bool(outcome.wrong))
        self.say(line_of(outcome))

    def keep_bare(self, lab: Laboratory, bare: Bare) -> None:
        """Time a plain training. One that is compiled has a cache of Inductor's of its own, and so has its row."""
        if not lab.commands.left:
            return
        words, variables = bare.command()
        compiles = {"TORCHINDUCTOR_CACHE_DIR": str(lab.folder.parent / "inductor-bare")} if bare.compiled else {}
        variables = {**lab.device.bare_variables, **variables, **compiles}
        done = lab.commands.python(*words, limit=BARE_LIMIT, variables=variables)
        if done.code == 0:
            self.file.add_bare(bare.key, round(done.seconds, 2), self.seconds)
        self.say(f"bare {bare.key}: {f'{done.seconds:.1f} s' if done.code == 0 else done.why()}")


def run_list(
    rows: Sequence[Row],
    device: str,
    out: Path,
    work: Path,
    known: Results,
    *,
    order: Sequence[str],
    jobs: int,
    seconds: float,
) -> Results:
    """Run rows on a device but for those that are `known`, up to `jobs` at a time, for so many seconds at most.

    Return what was found and known, in an order of names.
    """
    began = time.monotonic()
    this = Round(ResultsFile(out / "results.json", known), Evidence(out, known.runs), began)
    rows = [row for row in rows if row.name not in {row.name for row in known.rows}]
    opened_device = opened(device, work)
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": COMPILERS}
    variables = {**opened_device.variables, **inductor}
    alone = [row for row in rows if row.alone]
    beside = [row for row in rows if not row.alone]
    threads = {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // jobs))}
    reserved = FOR_ALONE if alone else 0.0
    shared = Commands(variables | threads, began + seconds - reserved, slower=opened_device.slower)
    quiet = Commands(variables, began + seconds, slower=opened_device.slower)
    lab = Laboratory(opened_device, shared, work / "runs")
    try:
        side_by_side(this, lab, beside, jobs)
        for row in alone:
            this.keep(replace(lab, commands=quiet), row)
    except KeyboardInterrupt:
        this.say("interrupted: what is done is kept")
    finally:
        shared.stop()
        quiet.stop()
    run = {row.name for row in this.file.results.rows}
    for row in rows:
        if row.name not in run:
            this.file.add(replace(plain(row), wrong="was not run: interrupted"), this.seconds)
    this.file.order(order, this.seconds)
    return this.file.results


def side_by_side(this: Round, lab: Laboratory, rows: Sequence[Row], jobs: int) -> None:
    """Run plain trainings and rows, first what is compiled, as it takes longest."""
    investigations = [row for row in rows if isinstance(row, Investigation) and not told_at_once(lab, row)]
    trainings = {bare.key: bare for row in investigations for bare in lab.device.bare(row)}
    possible = [
        bare
        for bare in trainings.values()
        if (lab.device.is_cuda or not bare.compiled) and bare.key not in this.file.results.bare
    ]
    ordered = sorted(rows, key=lambda row: not any(COMPILED in mode for mode in row.modes))
    with ThreadPoolExecutor(jobs) as pool:
        try:
            tasks: list[Callable[[], None]] = [
                *(lambda bare=bare: this.keep_bare(lab, bare) for bare in possible if bare.compiled),
                *(lambda row=row: this.keep(lab, row) for row in ordered),
                *(lambda bare=bare: this.keep_bare(lab, bare) for bare in possible if not bare.compiled),
            ]
            for done in as_completed([pool.submit(task) for task in tasks]):
                done.result()
        except BaseException:
            lab.commands.stop()
            pool.shutdown(cancel_futures=True)
            raise
