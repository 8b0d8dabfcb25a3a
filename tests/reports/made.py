"""The four reports that CI makes as files: the founding case, a fault of lazy mode, one in bfloat16, and a clean pair.

scripts/reports                # into build/reports, each with its first screen as a picture
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..processes.forked import numdrift_in

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
FOLDER = ROOT / "build" / "reports"


@dataclass(frozen=True, slots=True)
class Case:
    """One investigation. `exit_code` is how it ends; `says` are words of its first screen: what happened and where, how
    sure that is, and what to do."""

    name: str
    script: Path
    modes: Sequence[str]
    exit_code: int
    says: Sequence[str]
    arguments: Sequence[str] = ()

    def make(self, folder: Path) -> Path:
        """Investigate, and give the page, as `NAME.html` in the folder."""
        page = folder / f"{self.name}.html"
        folder.mkdir(parents=True, exist_ok=True)
        modes = [word for mode in self.modes for word in ("--mode", mode)]
        with tempfile.TemporaryDirectory() as runs:
            asked = [*modes, "--graphs", "--name", self.name, "--out", runs, "--", *self.arguments]
            done = numdrift_in(ROOT, "investigate", self.script.relative_to(ROOT), *asked, COLUMNS="100")
            if done.returncode != self.exit_code:
                raise RuntimeError(f"{self.name} ended with {done.returncode}: {done.stdout}{done.stderr}")
            shutil.copyfile(Path(runs) / self.name / "report.html", page)
        return page


CASES = (
    Case(
        "founding",
        ROOT / "reproducers" / "sam_tanh.py",
        ("cpu", "compile"),
        0,
        ("compile", "sam_tanh.py:67", "it is rounding", "a fault begins at", "nothing to do"),
        ("--epochs", "40"),
    ),
    Case(
        "lazy-fault",
        SCRIPTS / "running_statistics.py",
        ("cpu", "lazy,env.FAULT=1"),
        1,
        (
            "lazy calls native_batch_norm with different arguments (momentum: 0 instead of 0.1) in norm",
            "running_statistics.py:21", "a proven fault from step 0 on", "swapping this into cpu reproduces the drift", "look at running_statistics.py:21",
        ),
    ),
    Case(
        "bfloat16-fault",
        SCRIPTS / "attention_in_half.py",
        ("cpu", "compile,env.FAULT=1"),
        1,
        (
            "compile calls div with different arguments (6.32456 instead of 5.65685)", "attention_in_half.py:23", "a proven fault",
            "div moves values by up to", "look at attention_in_half.py:23",
        ),
    ),
    Case(
        "clean",
        SCRIPTS / "attention_in_half.py",
        ("cpu", "compile,backend=aot_eager"),
        0,
        ("compile computes the same as cpu, bit for bit", "nothing to do"),
    ),
)  # fmt: skip
