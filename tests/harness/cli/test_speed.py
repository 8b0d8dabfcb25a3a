from __future__ import annotations

import pytest

from numdrift.harness.cli.progress import describe
from numdrift.harness.launch.running_process import JournalProgress


@pytest.mark.parametrize(
    ("steps", "seconds", "said"),
    [
        (1200, 2.0, "step 1,200  loss 0.5  600.0 steps/s"),
        (10, 10.0, "step 10  loss 0.5  1.0 steps/s"),
        (2, 90.0, "step 2  loss 0.5  45.0 s/step"),
        (0, 90.0, "step 0  loss 0.5"),
    ],
)
def test_a_slow_mode_has_its_seconds_a_step(steps: int, seconds: float, said: str) -> None:
    assert describe(JournalProgress(steps=steps, loss=0.5, seconds=seconds)) == said
