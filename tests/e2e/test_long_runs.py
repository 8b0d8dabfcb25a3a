"""Long runs: the recorder's memory does not grow with the number of steps, nor its disk beyond the budget."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from numdrift import load_run

from ..conftest import Numdrift

MIB = 1024


pytestmark = pytest.mark.own_processes


def _peak_kib(run: Path) -> int:
    found = re.search(r"peak (\d+) KiB", (run / "stdout.log").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.slow
@pytest.mark.parametrize("most", [5_000, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_memory_does_not_grow_with_the_steps(most: int, numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    few, peaks = most // 20, {}
    for steps in (few, most):
        arguments = (
            "--keep-budget",
            "4",
            "--name",
            f"n{steps}",
            "--",
            "--steps",
            str(steps),
            "--width",
            "64",
        )
        done = numdrift("run", tiny, "--modes", "cpu", *arguments)
        assert done.returncode == 0, done.stderr
        run = load_run(tmp_path / f"runs/n{steps}/cpu")
        assert len(run.journal.steps) == steps
        assert sum(1 for _ in run.journal.digests()) == steps
        peaks[steps] = _peak_kib(run.path)
        values = sum(path.stat().st_size for path in run.path.glob("journal/values-*.bin"))
        assert values <= 4 * MIB * 1024 + 4096
    # The digests alone would come to more than 0.5 KiB a step if they were held.
    assert peaks[most] - peaks[few] < most // 4, peaks
    long = load_run(tmp_path / f"runs/n{most}/cpu")
    assert "from now on they are kept at one step in" in "".join(long.manifest.notices)
    spaced = long.journal.value_steps[:-1]
    assert spaced[0] == 0 and len({b - a for a, b in pairwise(spaced)}) == 1
    assert long.journal.value_steps[-1] == most - 1
