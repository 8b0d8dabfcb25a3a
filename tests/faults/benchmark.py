"""Investigate every case on its models, and say how many faults are found and how many alarms are false.

    scripts/bench faults                                    # everything; writes docs/reference/score.md
    scripts/bench faults --models gru,cnn --kinds loop,benign
    scripts/bench faults --mode compile                     # those of compiled trainings
    scripts/bench faults --keep runs/faults                 # leaves the investigations there, and goes on with them
    scripts/bench faults --unrepeatable                     # on trainings that do not repeat their own bits
    scripts/bench faults --xla                              # those of mode xla; writes docs/reference/score-xla.md
    scripts/bench faults --keep runs/faults --engine ray --engine-option address=auto

With --engine, each investigation is a task of an engine of `numdrift batch`, and the same command goes on after an
interruption. Without it, the investigations are executed here, one after the other, forked from one process.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from numdrift.harness.drift import calibration
from numdrift.harness.engines.engine import ENGINES, LOCAL, engine_words
from numdrift.harness.errors import NumdriftError, UsageError
from numdrift.harness.launch.checked_interpreter import check_interpreter
from numdrift.harness.launch.xla_environment import in_their_interpreters
from numdrift.harness.records.modes.mode_spec import parse_mode

from . import xla_trials
from .any_order import VARIABLE
from .case import Trial, all_models, trials
from .investigations import ROOT, Investigation, executed, executed_by_engine, investigations
from .score import CASES_PLANTED, XLA_PLANTED, Score

PAGE = ROOT / "docs/reference/score.md"


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    planned: list[Investigation] = []
    with tempfile.TemporaryDirectory() as temporary:
        for model in args.models:
            known = known_trials(model, xla=args.xla)
            chosen = [trial for trial in known if trial.case.kind in args.kinds and named(trial, args)]
            if args.unrepeatable:
                os.environ[VARIABLE] = "1"
                chosen = [trial for trial in chosen if can_be_unrepeatable(trial)]
            planned += investigations(model, chosen)
        folder = args.keep or Path(temporary)
        if args.written:
            judged = [judgement for investigation in planned for judgement in investigation.written(folder)]
        elif args.engine:
            options = engine_words(args.engine_option)
            judged = executed_by_engine(planned, folder, args.jobs, args.engine, options)
        else:
            judged = [
                judgement for investigation in planned for judgement in executed(investigation, folder, args.jobs)
            ]
    score = Score(tuple(judged))
    print(score.table())
    if args.whole:
        provenance = calibration.Provenance(
            what="the benchmark of planted faults, tests/faults",
            torch=versions_of_xla() if args.xla else torch.__version__,
            command="scripts/bench faults --xla" if args.xla else "scripts/bench faults",
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        )
        page = PAGE.with_name("score-xla.md") if args.xla else PAGE
        page.parent.mkdir(exist_ok=True)
        said = (XLA_PLANTED, "Score on faults in mode xla") if args.xla else (CASES_PLANTED,)
        page.write_text(score.page(provenance, *said), encoding="utf-8")
        calibrate(score, provenance)
        print(f"Wrote {page.relative_to(ROOT)} and {calibration.TABLE.name}")
    return 0 if score.perfect else 1


def versions_of_xla() -> str:
    """`2.9.0 and torch_xla 2.9.0`. Raises UsageError where there is no environment of torch_xla."""
    (mode,) = in_their_interpreters([parse_mode("xla")]).modes
    found = check_interpreter(mode)
    return f"{found['torch']} and torch_xla {found['torch_xla']}"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    given = sys.argv[1:] if argv is None else argv
    models = xla_trials.models() if "--xla" in given else all_models()
    kinds = sorted({trial.case.kind for model in models for trial in known_trials(model, xla="--xla" in given)})
    for name, known in (("models", models), ("kinds", kinds)):
        parser.add_argument(f"--{name}", default=",".join(known), help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--cases", default="", help="names of cases (default: all)")
    parser.add_argument("--mode", default="", help="only trials of a mode that begins with this word, as in compile")
    parser.add_argument("--xla", action="store_true", help="the part of mode xla, which needs .venv-xla")
    parser.add_argument(
        "--unrepeatable", action="store_true", help="the products of every training add in another order each time"
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs of an investigation side by side, default 2")
    parser.add_argument(
        "--engine", choices=ENGINES, help="what executes the investigations, as many as it has room for"
    )
    parser.add_argument("--engine-option", action="append", default=[], metavar="KEY=VALUE", help="a setting of it")
    parser.add_argument("--keep", type=Path, help="the folder for the investigations (default: a temporary one)")
    parser.add_argument("--written", action="store_true", help="score the findings in the folder, and execute nothing")
    args = parser.parse_args(argv)
    if args.engine not in (None, LOCAL) and args.keep is None:
        parser.error(f"--engine {args.engine} needs --keep, a folder that all machines share")
    args.models, args.kinds = args.models.split(","), args.kinds.split(",")
    args.cases = args.cases.split(",") if args.cases else []
    for given, known in (
        (args.models, models),
        (args.kinds, kinds),
        (args.cases, [trial.case.name for model in models for trial in known_trials(model, xla=args.xla)]),
    ):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
    args.whole = args.models == models and args.kinds == kinds and not (args.cases or args.mode or args.unrepeatable)
    return args


def known_trials(model: str, *, xla: bool) -> list[Trial]:
    return xla_trials.trials(model) if xla else trials(model)


def can_be_unrepeatable(trial: Trial) -> bool:
    """Whether the trial is eager, and leaves the product alone that then adds in another order each time."""
    return trial.mode.startswith("cpu") and "kernel.mm=" not in trial.mode and trial.against is None


def named(trial: Trial, args: argparse.Namespace) -> bool:
    is_of_mode = any(mode.startswith(args.mode) for mode in (trial.mode, trial.against) if mode is not None)
    return is_of_mode and (not args.cases or trial.case.name in args.cases)


def calibrate(score: Score, provenance: calibration.Provenance) -> None:
    """Put the thresholds that follow from the benign scores where numdrift finds them."""
    table = calibration.read_table(calibration.TABLE)
    for backend, benign in score.benign_scores().items():
        try:
            table = calibration.calibrated(table, backend, benign, provenance, score.smallest_fault_score(backend))
        except UsageError as error:
            print(f"{backend} is not calibrated: {error}")
    calibration.TABLE.write_text(json.dumps(table.to_json(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NumdriftError as error:
        sys.exit(f"scripts/bench faults: {error}")
