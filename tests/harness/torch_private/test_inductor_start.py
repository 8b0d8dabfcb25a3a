"""The trials of instruction sets: a library that can be loaded, one that cannot, and one that ends its process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from torch._inductor import cpu_vec_isa

from numdrift.harness.torch_private.compiler.inductor_start import loading_in_forks


@pytest.mark.parametrize(
    ("code", "is_loaded"),
    [
        ('extern "C" int value() { return 1; }', True),
        ('extern "C" int undefined_elsewhere(); int value = undefined_elsewhere();', False),
        ("struct Ends { Ends() { __builtin_trap(); } } ends;", False),
    ],
    ids=["loads", "lacks a symbol", "unknown instruction"],
)
def test_a_fork_finds_what_inductors_own_trial_finds(code: str, is_loaded: bool, tmp_path: Path) -> None:
    source, library = tmp_path / "trial.cpp", tmp_path / "trial.so"
    source.write_text(code)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    vectors = cpu_vec_isa.VecAVX2()
    of_inductor = vectors._probe_load(str(library))
    with loading_in_forks(cpu_vec_isa.VecISA):
        in_a_fork = vectors._probe_load(str(library))
    assert (of_inductor, in_a_fork) == (is_loaded, is_loaded)
