"""`numdrift check` on reproducers of issues of PyTorch, beside what upstream said and what CompilerBisector names.

    scripts/bench upstream                  # writes docs/reference/upstream.md
    scripts/bench upstream --only 197895,195422 --page -
    scripts/bench upstream --keep runs/upstream.jsonl    # goes on with what is measured there

Every script in `cases/` was written for this benchmark; `cases.json` says what the issue is about, and what plain PyTorch
computes. A case counts as right if numdrift's verdict is of the kind that plain PyTorch shows.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .page import PAGE, Answer, page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES = HERE / "cases"
TIMEOUT = 240.0
RESULT = re.compile(r"^Bisection complete: (.*)$", re.MULTILINE)
FIELD = re.compile(r"(backend|subsystem|debug_info)=(?:'([^']*)'|\"([^\"]*)\")")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    cases = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
    answers = read(args.keep) if args.keep else []
    with tempfile.TemporaryDirectory() as cache:
        for case in cases:
            number = case["number"]
            if (args.only and number not in args.only) or any(answer.number == number for answer in answers):
                continue
            answer = answered(case, Path(cache), bisects=args.bisects)
            answers.append(answer)
            print(f"{number}: {answer.verdict} in {answer.seconds:.0f} s, {case['expected']} expected", flush=True)
            if args.keep:
                with args.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(answer)) + "\n")
    text = page(cases, answers, provenance())
    if args.page == Path("-"):
        print(text)
    else:
        args.page.write_text(text, encoding="utf-8")
        print(f"Wrote {args.page}")
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench upstream", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", type=lambda text: [int(number) for number in text.split(",")], default=[], help="only these issues"
    )
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep what is measured there, and go on with it")
    parser.add_argument("--no-bisector", dest="bisects", action="store_false", help="leave out CompilerBisector")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written, `-` for standard output")
    return parser.parse_args(argv)


def read(path: Path) -> list[Answer]:
    """Return what an interrupted benchmark has measured already."""
    if not path.exists():
        return []
    return [Answer(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def answered(case: dict[str, Any], cache: Path, *, bisects: bool) -> Answer:
    """Check a case, and bisect it."""
    script = CASES / f"issue_{case['number']}.py"
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "COLUMNS": "200"}
    with tempfile.TemporaryDirectory() as folder:
        options = case.get("options", [])
        command = [sys.executable, "-m", "numdrift", "check", str(script), *options, "--out", folder, "--json", "-"]
        code, output, errors, seconds = timed(command, env)
    try:
        found = json.loads(output)
    except ValueError:
        last = (errors.strip().splitlines() or ["nothing was printed"])[-1]
        return Answer(case["number"], "none", f"exit code {code}: {last}", "", seconds, "", 0.0)
    (mode,) = found["modes"]
    culprits = (mode.get("pair") or {}).get("culprits") or []
    first: dict[str, Any] = next((culprit for culprit in culprits if culprit.get("status") == "culprit"), {})
    cause = first.get("op") or first.get("name") or ""
    named, bisector_seconds = bisected(script, env) if bisects and not options else ("", 0.0)
    return Answer(
        case["number"], mode["verdict"] or "undecided", mode["answer"], cause, seconds, named, bisector_seconds
    )


def bisected(script: Path, env: dict[str, str]) -> tuple[str, float]:
    """Return what CompilerBisector names, and its seconds."""
    own = env | {"TORCHINDUCTOR_CACHE_DIR": env["TORCHINDUCTOR_CACHE_DIR"] + "-bisector"}
    code, output, _, seconds = timed([sys.executable, "-m", "tests.upstream.bisected", str(script)], own)
    match = RESULT.search(output)
    if match is None:
        return f"none (exit code {code})", seconds
    fields = {name: first or second for name, first, second in FIELD.findall(match[1])}
    named = [fields.get("backend", ""), fields.get("subsystem", "")]
    return " ".join(filter(None, named)) or "no issue found", seconds


def timed(command: Sequence[str], env: dict[str, str]) -> tuple[int, str, str, float]:
    began = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return 124, "", f"it did not end within {TIMEOUT:.0f} s", TIMEOUT
    return done.returncode, done.stdout, done.stderr, time.perf_counter() - began


def provenance() -> str:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = models[0].partition(":")[2].strip() if models else "a processor that does not tell its name"
    cores = len(os.sched_getaffinity(0))
    return f"measured on {date} with torch {importlib.metadata.version('torch')} on {cores} cores ({processor})"


if __name__ == "__main__":
    sys.exit(main())
