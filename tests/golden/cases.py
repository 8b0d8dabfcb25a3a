"""The investigations whose answers are kept, and how one is run: by the command line, in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REPRODUCERS = ROOT / "reproducers"
SCRIPTS = ROOT / "tests" / "e2e" / "scripts"
NAME = "case"
TIMEOUT = 3600.0  # seconds; a case takes one to two minutes where nothing else runs

SAME_BITS = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "PYTHONHASHSEED": "0",
    "COLUMNS": "200",
}
"""One thread, and the same vector instructions in ATen, Inductor, oneDNN and MKL on every x86 processor with AVX2.

Without them even a verdict depends on the processor: whether lazy mode is eager bit for bit in `sam_tanh.py` is
decided by how MKL multiplies a transposed matrix there."""


@dataclass(frozen=True, slots=True)
class Case:
    """One investigation: the script is copied beside its neighbours into `place`, and run from the folder above.

    One run at a time, so that what is said on standard error comes in one order."""

    name: str
    files: tuple[Path, ...]
    options: tuple[str, ...]
    arguments: tuple[str, ...]
    place: str = "reproducers"

    def command(self) -> list[str]:
        script = f"{self.place}/{self.files[0].name}"
        asked = [script, "--name", NAME, "--jobs", "1", *self.options, "--", *self.arguments]
        return [sys.executable, "-m", "numdrift", "investigate", *asked]


@dataclass(frozen=True, slots=True)
class Said:
    """What an investigation gave, as it is: nothing is normalised."""

    exit_code: int
    content: dict[str, Any]
    stdout: str
    stderr: str
    folder: Path

    @classmethod
    def read(cls, folder: Path) -> Said:
        """What `run_case` left in a folder."""
        file = folder / "runs" / NAME / "investigation.json"
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        code = int((folder / "exit_code").read_text(encoding="utf-8"))
        out, err = ((folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        return cls(code, content, out, err, folder)


def run_case(case: Case, folder: Path) -> Said:
    """Investigate in `folder`, and leave what was printed beside the runs.

    The numdrift is the one that this Python finds: `PYTHONPATH=/another/checkout/src` asks another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in case.files:
        copy = folder / case.place / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    done = subprocess.run(
        case.command(),
        cwd=folder,
        env=os.environ | SAME_BITS,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr), ("exit_code", str(done.returncode))):
        (folder / name).write_text(text, encoding="utf-8")
    return Said.read(folder)


SAM_TANH = (REPRODUCERS / "sam_tanh.py", REPRODUCERS / "sam.py")
PLANTED = "kernel.tanh_backward=bf16"

CASES = {
    case.name: case
    for case in (
        Case("sam_tanh_compile", SAM_TANH, ("--modes", "cpu,compile"), ("--epochs", "2")),
        Case("sam_tanh_lazy", SAM_TANH, ("--modes", "cpu,lazy"), ("--epochs", "2")),
        Case(
            "sam_tanh_planted_compile",
            SAM_TANH,
            ("--mode", "cpu", "--mode", f"compile,{PLANTED}"),
            ("--epochs", "2"),
        ),
        Case(
            "sam_tanh_planted_lazy",
            SAM_TANH,
            ("--mode", "cpu", "--mode", f"lazy,{PLANTED}"),
            ("--epochs", "2"),
        ),
        Case(
            "char_gpt_compile",
            (REPRODUCERS / "char_gpt.py",),
            ("--modes", "cpu,compile", "--steps", "1"),
            ("--steps", "2"),
        ),
        Case(
            "resnet_digits_compile",
            (REPRODUCERS / "resnet_digits.py",),
            ("--modes", "cpu,compile", "--steps", "1"),
            ("--steps", "2"),
        ),
        Case(
            "ranks_fault",
            (SCRIPTS / "ranks.py",),
            ("--nproc", "2", "--mode", "cpu", "--mode", "b=cpu,env.FAULT=1", "--steps", "1"),
            ("--steps", "2"),
            place="scripts",
        ),
    )
}
