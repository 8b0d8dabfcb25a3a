"""Scripts that name a device, none, or compile by themselves: compared with plain `python`, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from numdrift import load_run

from ..conftest import ROOT, Numdrift
from ..processes.forked import python

SCRIPTS = ROOT / "tests" / "e2e" / "scripts"


def bare(script: str, **environment: str) -> str:
    """What a script prints when plain python runs it."""
    done = python(Path.cwd(), SCRIPTS / script, **environment)  # type: ignore[arg-type]
    done.check_returncode()
    return done.stdout


def ran(numdrift: Numdrift, folder: Path, script: str, mode: str, *arguments: str) -> str:
    """What a script prints in a mode. The run is complete."""
    done = numdrift("run", SCRIPTS / script, "--mode", mode, *arguments)
    assert done.returncode == 0, done.stderr
    return (folder / "runs" / script.removesuffix(".py") / mode.partition(",")[0] / "stdout.log").read_text()


def facts_of(folder: Path, script: str, mode: str) -> str:
    return (folder / "runs" / script / mode / "journal" / "events.jsonl").read_text()


def test_a_script_for_cuda_computes_on_the_cpu_what_it_would_there(numdrift: Numdrift, tmp_path: Path) -> None:
    assert ran(numdrift, tmp_path, "hard_coded.py", "cpu") == bare("hard_coded.py", BARE="cpu")
    facts = facts_of(tmp_path, "hard_coded", "cpu")
    assert "cuda is cpu in this mode" in facts
    assert "autocast to bfloat16 runs on cpu" in facts
    assert "GradScaler scales on cpu" in facts


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_a_script_for_cuda_is_compiled_for_the_cpu(backend: str, numdrift: Numdrift, tmp_path: Path) -> None:
    printed = ran(numdrift, tmp_path, "hard_coded.py", f"compile,backend={backend}")
    assert printed == bare("hard_coded.py", BARE="cpu", COMPILE=backend)
    assert "1 region compiled, no graph breaks" in facts_of(tmp_path, "hard_coded", "compile")


@pytest.mark.slow
def test_a_script_without_a_device_computes_what_one_with_it_would(numdrift: Numdrift, tmp_path: Path) -> None:
    printed = ran(numdrift, tmp_path, "without_device.py", "lazy")
    # The same mode: where its graphs are cut decides which kernels they are made of.
    by_hand = numdrift("run", SCRIPTS / "without_device.py", "--mode", "lazy,env.BARE=lazy", "--name", "by-hand")
    assert by_hand.returncode == 0, by_hand.stderr
    assert printed == (tmp_path / "runs" / "by-hand" / "lazy" / "stdout.log").read_text()
    assert "Sequential was on cpu and has been moved to lazy" in facts_of(tmp_path, "without_device", "lazy")
    assert "moved to lazy" not in facts_of(tmp_path, "by-hand", "lazy")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["step", "model", "method"])
def test_what_a_script_compiles_is_the_modes(way: str, numdrift: Numdrift, tmp_path: Path) -> None:
    # given
    modes = [f"{base},env.WAY={way}" for base in ("cpu", "compile")]
    done = numdrift("run", SCRIPTS / "compiles_itself.py", "--mode", modes[0], "--mode", modes[1])
    assert done.returncode == 0, done.stderr
    eager, compiled = (
        (tmp_path / "runs" / "compiles_itself" / mode / "stdout.log").read_text() for mode in ("cpu", "compile")
    )
    # then
    assert compiled == bare("compiles_itself.py", WAY=way)
    assert eager == bare("compiles_itself.py", WAY="none")
    run = load_run(tmp_path / "runs" / "compiles_itself" / "compile")
    assert set(run.journal.values(2)) == {"inner.weight", "inner.bias", "outer.weight", "outer.bias"}
