"""A Python kernel of the user's own with modules beside it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from numdrift.kernels.user import user_kernel


def written(folder: Path, text: str, name: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


HELPED = "import helper\nfrom parts import factors\n\ndef tanh_backward(g, y): return factors(g, helper.y(y))\n"


def with_helpers(folder: Path, scale: int) -> Path:
    """A kernel that imports a module and a package beside it; scale: what the result is multiplied with."""
    (folder / "parts").mkdir(parents=True)
    written(folder / "parts", "from .inner import factors\n", "__init__.py")
    written(folder / "parts", "def factors(g, y): return g * (1 - y) * (1 + y)\n", "inner.py")
    written(folder, f"def y(y): return {scale} * y\n", "helper.py")
    return written(folder, HELPED, "mine.py")


def test_modules_beside_a_file_are_its_own(tmp_path: Path) -> None:
    before, names = list(sys.path), set(sys.modules)
    kernels = [user_kernel("tanh_backward", with_helpers(tmp_path / str(k), k)) for k in (0, 1)]
    # each has the helper of its folder
    assert [kernel.load()(2.0, 0.5) for kernel in kernels] == [2.0, 1.5]
    assert sys.path == before
    assert not any(name.partition(".")[0] in ("helper", "parts") for name in sys.modules.keys() - names)
    assert not list(tmp_path.rglob("__pycache__"))
    assert all(name in kernels[0].source for name in ("mine.py", "helper.py", "__init__.py", "inner.py"))


def test_a_helper_of_the_script_stays_the_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a script in another folder that has imported its own helper
    (tmp_path / "script").mkdir()
    written(tmp_path / "script", "name = 'of the script'\n", "helper.py")
    monkeypatch.syspath_prepend(str(tmp_path / "script"))
    script = importlib.import_module("helper")
    # when
    kernel = user_kernel("tanh_backward", with_helpers(tmp_path / "kernel", 1))
    # then
    assert kernel.load()(2.0, 0.5) == 1.5
    assert sys.modules.pop("helper") is script and script.name == "of the script"


@pytest.mark.slow
def test_a_changed_helper_is_told_by_the_source(tmp_path: Path) -> None:
    path = with_helpers(tmp_path / "kernel", 1)
    code = "import sys; from pathlib import Path; from numdrift.kernels.user import user_kernel\n"
    code += "print(user_kernel('tanh_backward', Path(sys.argv[1])).source)"

    def source() -> str:
        return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout  # fmt: skip

    first = source()
    written(path.parent, "def y(y): return y\n", "helper.py")
    assert source() != first
