"""A Python that cannot run a mode is refused in one line, before anything is started in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.launch.checked_interpreter import check_interpreter
from numdrift.harness.records.modes.mode_spec import parse_mode


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """An environment in which nothing is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare/bin/python"


def refusal(spec: str) -> str:
    with pytest.raises(UsageError) as refused:
        check_interpreter(parse_mode(spec))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_ones_own_python_will_do() -> None:
    check_interpreter(parse_mode("cpu"))
    check_interpreter(parse_mode(f"cpu,python={sys.executable}"))


def test_a_python_without_torch_is_told_how_to_get_it(bare_python: Path) -> None:
    said = refusal(f"x=cpu,python={bare_python}")
    assert said == f"mode 'x': python={bare_python} has no torch; install one there: {bare_python} -m pip install torch"


@pytest.mark.parametrize(
    ("version", "needed"),
    [("2.5.1+cpu", True), ("1.13.1", True), ("2.6.0", False), ("2.10.0a0+git12", False)],
)
def test_the_torch_that_the_modes_environment_finds_is_asked(
    version: str, needed: bool, bare_python: Path, tmp_path: Path
) -> None:
    package = tmp_path / "site/torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is not to be imported')\n")
    (package / "version.py").write_text(f"__version__ = {version!r}\n")
    spec = f"x=cpu,python={bare_python},env.PYTHONPATH={package.parent}"
    if needed:
        assert refusal(spec).endswith(f"has torch {version}, but numdrift needs 2.6 or later")
    else:
        check_interpreter(parse_mode(spec))


def test_an_old_python_is_named() -> None:
    old = next(iter(sorted(Path.home().glob(".pyenv/versions/3.[6-9].*/bin/python"))), None)
    if old is None:
        pytest.skip("no Python before 3.10 is installed here")
    version = ".".join(old.parents[1].name.split(".")[:2])
    assert refusal(f"x=cpu,python={old}").endswith(f"is Python {version}, but numdrift needs 3.10 or later")


@pytest.mark.parametrize("program", ["/bin/true", "/bin/cat"])
def test_a_program_that_is_no_python_is_named(program: str) -> None:
    assert f"python={program} is not a Python interpreter: " in refusal(f"x=cpu,python={program}")


def test_a_folder_named_torch_beside_the_script_is_no_torch(
    bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert "has no torch" in refusal(f"x=cpu,python={bare_python}")
