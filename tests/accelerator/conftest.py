"""The stand-in for an accelerator, installed, with the command line and Python beside it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from ..processes.forked import numdrift_in, python
from .installed import install


@dataclasses.dataclass(frozen=True, slots=True)
class Standin:
    """A folder of a test's own, and processes that run in it and find the stand-in."""

    folder: Path
    site: Path

    def __call__(
        self, *arguments: str | Path, timeout: float = 900, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run numdrift."""
        return numdrift_in(self.folder, *arguments, timeout=timeout, PYTHONPATH=self.path, **variables)

    def python(
        self, *arguments: str | Path, timeout: float = 900, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python, in a process of its own where a variable of the device is set."""
        return python(self.folder, *arguments, timeout=timeout, PYTHONPATH=self.path, **variables)

    @property
    def path(self) -> str:
        return os.pathsep.join([str(self.site), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="session")
def standin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the stand-in is installed in."""
    return install(tmp_path_factory.mktemp("standin") / "site")


@pytest.fixture
def standin(tmp_path: Path, standin_site: Path) -> Standin:
    """The stand-in, the command line and Python in an empty folder."""
    return Standin(tmp_path, standin_site)
