"""The four folders at the top install as parts of `numdrift`, and shadow nothing when run from the root."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "numdrift"


@pytest.mark.parametrize("folder", ["harness", "kernels", "plots", "reproducers"])
def test_folder_is_linked_and_does_not_shadow(folder: str) -> None:
    link = PACKAGE / folder
    assert link.is_symlink() and link.resolve() == ROOT / folder
    assert not link.readlink().is_absolute(), "an absolute link breaks in the next checkout"
    assert link.is_dir(), f"{folder}/ is missing: git keeps no empty folder"
    assert not (ROOT / folder / "__init__.py").exists(), f"would shadow `import {folder}`"


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
