"""What lazy mode's bits are on this machine: known without lazy mode, from an eager run that copies what is transposed."""

from __future__ import annotations

from pathlib import Path

from ..conftest import Numdrift

COPIED = Path(__file__).parent / "scripts" / "transposes_copied.py"


def lazy_is_eager(numdrift: Numdrift, runs: str, *script: str | Path) -> bool:
    """Whether lazy mode has eager's bits here, which it has where the library has one path for views and for copies.

    In any case it has those of the eager run that copies, which is asserted of the recorded `runs`/lazy.
    """
    done = numdrift("run", COPIED, "--modes", "cpu", "--name", "copied", "-q", "--", *script)
    assert done.returncode == 0, done.stderr
    assert _are_identical(numdrift, "runs/copied/cpu", f"{runs}/lazy")
    return _are_identical(numdrift, "runs/copied/cpu", f"{runs}/cpu")


def _are_identical(numdrift: Numdrift, a: str, b: str) -> bool:
    return "identical bit for bit" in numdrift("compare", a, b).stdout
