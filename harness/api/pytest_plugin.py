"""A plug-in of pytest: the fixture `numdrift`, with which a test keeps a training as it is.

    @pytest.mark.numdrift
    def test_the_training_is_the_same(numdrift):
        numdrift.assert_same_training("train.py", ["--steps", "6"])

    def test_a_function(numdrift):
        numdrift.assert_equivalent(scaled, "randn(4, 8)")

The baseline is the archive `baselines/train.zip` beside the file of the test. `pytest --numdrift-update` makes it, or
makes it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

UPDATE = "--numdrift-update"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes baselines."""
    parser.getgroup("numdrift").addoption(
        UPDATE, action="store_true", help="make the baselines of trainings anew, in place of comparing with them"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker, so that `-m numdrift` and `-m "not numdrift"` choose these tests."""
    config.addinivalue_line("markers", "numdrift: compares a training with its baseline, which takes some seconds")


@dataclass(frozen=True, slots=True)
class TrainingGate:
    """Compares trainings with baselines.

    folder: the folder of the baselines
    out: the folder of the runs
    update: whether baselines are made anew
    """

    folder: Path
    out: Path
    update: bool

    def assert_same_training(
        self,
        script: Path | str,
        arguments: Sequence[str] = (),
        *,
        baseline: Path | str | None = None,
        mode: str = "cpu",
        steps: str | None = None,
        max_steps: int | None = None,
        causes: bool = True,
    ) -> None:
        """Fail the test if the training differs from its baseline by more than rounding. The message names the cause.

        `baseline` is an archive, by default one in `folder` with the script's name. The other parameters are those of
        `numdrift.save_baseline` and `numdrift.assert_same_training`.
        """
        # imported here because every run of pytest loads this module
        from .gating import assert_same_training, save_baseline

        archive = self.folder / f"{Path(script).stem}.zip" if baseline is None else Path(baseline)
        if self.update:
            save_baseline(
                script, archive, arguments, mode=mode, steps=steps, max_steps=max_steps, out=self.out, force=True
            )
            return
        if not archive.exists():
            pytest.fail(f"there is no baseline {archive}; `pytest {UPDATE}` makes it", pytrace=False)
        try:
            assert_same_training(script, arguments, baseline=archive, mode=mode, causes=causes, out=self.out)
        except AssertionError as error:
            pytest.fail(str(error), pytrace=False)

    def assert_equivalent(self, target: Any, inputs: Any = "", modes: str | Sequence[str] = "cpu,compile") -> None:
        """Fail the test if modes differ by more than rounding on calls of a function. The message names the cause.

        The parameters are those of `numdrift.testing.assert_equivalent`.
        """
        from .checking import assert_equivalent  # as above

        try:
            assert_equivalent(target, inputs, modes, out=self.out)
        except AssertionError as error:
            pytest.fail(str(error), pytrace=False)


@pytest.fixture
def numdrift(request: pytest.FixtureRequest, tmp_path: Path) -> TrainingGate:
    """Compare trainings with the baselines beside the file of the test."""
    return TrainingGate(request.path.parent / "baselines", tmp_path / "runs", request.config.getoption(UPDATE))
