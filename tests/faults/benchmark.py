"""Investigate every case on its models, and say how many faults are found and how many alarms are false.

    scripts/bench faults                                    # everything; writes docs/reference/score.md
    scripts/bench faults --models gru,cnn --kinds loop,benign
    scripts/bench faults --keep runs/faults                 # leaves the investigations there, and goes on with them
    scripts/bench faults --unrepeatable                     # on trainings that do not repeat their own bits
    scripts/bench faults --xla                              # those of mode xla; writes docs/reference/score-xla.md

Each model is one investigation: the script as it is in cpu mode, and one mode for each case. A case that is the reference
itself has an investigation of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from numdrift.harness.drift import calibration
from numdrift.harness.errors import UsageError
from numdrift.harness.launch.checked_interpreter import check_interpreter
from numdrift.harness.launch.preloaded import SWITCH
from numdrift.harness.launch.xla_environment import in_their_interpreters
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.findings import INVESTIGATION

from ..processes.forked import nursery
from . import xla_trials
from .any_order import VARIABLE
from .case import FAULTS, MODELS, Trial, all_models, trials
from .score import CASES_PLANTED, XLA_PLANTED, Judged, Score

ROOT = FAULTS.parents[1]
LOCALIZE = ("--no-scripts", "--no-confirm", "--budget", "none")
PAGE = ROOT / "docs/reference/score.md"
DAY = 86400.0  # seconds


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    judged: list[Judged] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            known = known_trials(model, xla=args.xla)
            chosen = [trial for trial in known if trial.case.kind in args.kinds and named(trial, args)]
            if args.unrepeatable:
                os.environ[VARIABLE] = "1"
                chosen = [trial for trial in chosen if can_be_unrepeatable(trial)]
            if chosen:
                judged += investigate(model, chosen, args.keep or Path(folder), args.jobs, written=args.written)
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
    parser.add_argument("--xla", action="store_true", help="the part of mode xla, which needs .venv-xla")
    parser.add_argument(
        "--unrepeatable", action="store_true", help="the products of every training add in another order each time"
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, default 2")
    parser.add_argument("--keep", type=Path, help="the folder for the investigations (default: a temporary one)")
    parser.add_argument("--written", action="store_true", help="score the findings in the folder, and execute nothing")
    args = parser.parse_args(argv)
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
    args.whole = args.models == models and args.kinds == kinds and not args.cases and not args.unrepeatable
    return args


def known_trials(model: str, *, xla: bool) -> list[Trial]:
    return xla_trials.trials(model) if xla else trials(model)


def can_be_unrepeatable(trial: Trial) -> bool:
    """Whether the trial is eager, and leaves the product alone that then adds in another order each time."""
    return trial.mode.startswith("cpu") and "kernel.mm=" not in trial.mode and trial.against is None


def named(trial: Trial, args: argparse.Namespace) -> bool:
    return not args.cases or trial.case.name in args.cases


def investigate(model: str, chosen: Sequence[Trial], folder: Path, jobs: int, *, written: bool = False) -> list[Judged]:
    """Hold each trial against the model as it is, and that against each that is the reference itself."""
    together = [trial for trial in chosen if trial.against is None]
    specs = ["cpu", *(trial.spec for trial in together)]
    judged = pairs_of(model, model, specs, together, folder, jobs, written=written) if together else []
    for trial in chosen:
        if trial.against is not None:
            specs = [trial.spec, f"plain={trial.against}"]
            judged += pairs_of(model, f"{model}-{trial.name}", specs, [trial], folder, jobs, written=written)
    return judged


def pairs_of(
    model: str, name: str, specs: Sequence[str], chosen: Sequence[Trial], folder: Path, jobs: int, *, written: bool
) -> list[Judged]:
    """One investigation; its pairs are the chosen trials, one after the other."""
    if written:
        try:
            content = (folder / name / INVESTIGATION).read_bytes()
        except OSError as error:
            raise SystemExit(f"{name} has no findings: {error}") from None
        return judged_pairs(content, chosen, altogether(folder / f"{name}.seconds", 0.0))
    began = time.monotonic()
    modes = [part for spec in specs for part in ("--mode", spec)]
    script = str(MODELS / f"{model}.py")
    named_here = ["--name", name, "--out", str(folder), "--jobs", str(jobs)]
    done = nursery("1").run(
        ["-m", "numdrift", "investigate", script, *modes, *named_here, *LOCALIZE, "--json", "-"],
        cwd=ROOT,
        # its processes come from the nursery, but for those of another interpreter
        env=os.environ | {"OMP_NUM_THREADS": "1"} | ({} if "xla" in chosen[0].mode else {SWITCH: "0"}),
        timeout=DAY,
        stderr=sys.stderr.fileno(),
    )
    seconds = altogether(folder / f"{name}.seconds", time.monotonic() - began)
    if not done.stdout:
        raise SystemExit(f"the investigation of {name} ended with exit code {done.returncode}")
    return judged_pairs(done.stdout, chosen, seconds)


def judged_pairs(content: bytes, chosen: Sequence[Trial], seconds: float) -> list[Judged]:
    pairs = {pair["b"]: pair for pair in json.loads(content)["pairs"]}
    found = [pairs.get("plain" if trial.against else trial.name, {}) for trial in chosen]
    return [Judged.of(trial, pair, seconds / len(chosen)) for trial, pair in zip(chosen, found, strict=True)]


def altogether(path: Path, seconds: float) -> float:
    """Add what was spent on an investigation to what was spent on it before."""
    if path.exists():
        seconds += float(path.read_text())
    path.write_text(f"{seconds:.1f}\n")
    return seconds


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
    sys.exit(main())
