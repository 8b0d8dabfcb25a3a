"""The file that calls are counted in outlives the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from numdrift.kernels.swaps.counts import CountsFile, SwapCounts, read_counts


def test_counts_are_read_back(tmp_path: Path) -> None:
    counts = CountsFile(tmp_path / "counts", 2)
    for column in ("forward", "backward", "backward", "traced"):
        counts.add(1, column)
    counts.enter(0)
    assert read_counts(tmp_path / "counts", 2) == [
        SwapCounts(running=1),
        SwapCounts(forward=1, backward=2, traced=1),
    ]


def test_counts_survive_a_crash_inside_a_kernel(tmp_path: Path) -> None:
    # given a process that dies by a signal in its third call
    code = (
        "import os, sys, signal\n"
        "from pathlib import Path\n"
        "from numdrift.kernels.swaps.counts import CountsFile\n"
        "counts = CountsFile(Path(sys.argv[1]), 1)\n"
        "for call in range(3):\n"
        "    counts.add(0, 'forward'); counts.enter(0)\n"
        "    if call == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    counts.leave(0)\n"
    )
    # when
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "counts"], check=False)
    # then
    assert done.returncode == -9
    assert read_counts(tmp_path / "counts", 1) == [SwapCounts(forward=3, running=1)]


def test_a_fork_counts_for_itself(tmp_path: Path) -> None:
    counts = CountsFile(tmp_path / "counts", 1)
    counts.add(0, "forward")
    counts.forget()
    counts.add(0, "forward")
    assert counts.read() == [SwapCounts(forward=2)]
    assert read_counts(tmp_path / "counts", 1) == [SwapCounts(forward=1)]


def test_a_missing_or_torn_file_reads_as_zeros(tmp_path: Path) -> None:
    (tmp_path / "torn").write_bytes(b"abc")
    assert read_counts(tmp_path / "none", 2) == read_counts(tmp_path / "torn", 2) == [SwapCounts(), SwapCounts()]
