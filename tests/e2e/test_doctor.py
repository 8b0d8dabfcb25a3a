"""The doctor says what works here, and what is missing for the rest."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ..conftest import Numdrift


@pytest.mark.slow
def test_doctor_tries_every_mode(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("doctor", "--json", "-")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    findings = {finding["mode"]: finding for finding in report["findings"]}
    assert [findings[mode]["works"] for mode in ("cpu", "compile", "lazy")] == [True, True, True]
    assert findings["cuda"]["works"] == torch.cuda.is_available()
    for finding in findings.values():
        assert finding["works"] or (finding["reason"] and finding["remedy"])
    assert report["environment"]["torch"] == torch.__version__
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_doctor_names_a_missing_compiler(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    for tool in ("uname", "sh"):
        (empty / tool).symlink_to(shutil.which(tool) or "/bin/false")
    done = subprocess.run(
        [sys.executable, "-m", "numdrift", "doctor", "--modes", "cpu,compile", "--json", "-"],
        env={"PATH": str(empty), "HOME": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    cpu, compiled = json.loads(done.stdout)["findings"]
    assert cpu["works"] and not compiled["works"]
    assert "compiler" in compiled["reason"] and "g++" in compiled["remedy"]
