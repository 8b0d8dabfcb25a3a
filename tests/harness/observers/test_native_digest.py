"""Building, caching and refusing the native digest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from numdrift.harness.compiler import cache_folder
from numdrift.harness.observers.values import digest as native
from numdrift.harness.observers.values.digest import Digester

TENSORS = [
    torch.arange(3000.0),
    torch.ones(5),
    torch.arange(7000).to(torch.bfloat16),
    torch.ones(9000).half(),
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("NUMDRIFT_CACHE", str(folder))
    monkeypatch.delenv("CC", raising=False)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library as this machine builds it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMDRIFT_CACHE", str(tmp_path_factory.mktemp("built")))
        patch.delenv("CC", raising=False)
        assert native.load()[1] is None
        (library,) = cache_folder().iterdir()
        return library


def hashes(digester: Digester) -> list[bytes]:
    records = digester.digest(TENSORS)
    return [records[start : start + 8] for start in range(0, len(records), 64)]


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/h")
    monkeypatch.delenv("NUMDRIFT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/h/.cache/numdrift")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/numdrift")
    monkeypatch.setenv("NUMDRIFT_CACHE", "/n")
    assert cache_folder() == Path("/n")


@pytest.mark.slow
def test_two_processes_build_at_once(cache: Path) -> None:
    code = "from numdrift.harness.observers.values import digest as native; print(native.load()[1])"
    command = [sys.executable, "-c", code]
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [builder.communicate()[0] for builder in builders] == ["None\n"] * 2
    (library,) = cache.iterdir()
    assert cache.stat().st_mode & 0o777 == 0o700
    built = library.stat().st_mtime_ns
    assert Digester().implementation == "native" and library.stat().st_mtime_ns == built


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 4096, -40])
def test_a_truncated_library_is_rebuilt(cache: Path, built: Path, kept: int) -> None:
    cache.mkdir(mode=0o700)
    library = cache / built.name
    library.write_bytes(built.read_bytes()[:kept])
    assert Digester().implementation == "native"
    assert library.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("flags", ["-mno-avx512f", "-mno-avx512f -mno-avx2 -mno-avx"])
def test_older_instruction_sets_give_the_same_hashes(cache: Path, monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    monkeypatch.setenv("CC", f"cc {flags}")
    older = Digester()
    assert older.implementation == "native", older.reason
    assert hashes(older) == hashes(Digester(native=False))


def test_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    digester = Digester()
    assert digester.implementation == "torch" and "no C compiler" in str(digester.reason)
    assert len(digester.digest(TENSORS)) == 64 * len(TENSORS)


@pytest.mark.parametrize("compiler", ["/bin/false", "/nowhere/cc", "'unbalanced", "cc -include nowhere.h"])
def test_a_failing_compiler_gives_a_reason(cache: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    monkeypatch.setenv("CC", compiler)
    digester = Digester()
    assert digester.implementation == "torch" and digester.reason and "\n" not in digester.reason
    if "include" in compiler:
        assert "error" in digester.reason and "nowhere.h" in digester.reason


def test_a_folder_that_others_can_write_is_refused(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    function, reason = native.load()
    assert function is None and "another user can write to it" in str(reason)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_library_of_another_user_is_refused(cache: Path, built: Path) -> None:
    cache.mkdir(mode=0o700)
    library = cache / built.name
    library.write_bytes(built.read_bytes())
    os.chown(library, 12345, -1)
    function, reason = native.load()
    assert function is None and "belongs to another user" in str(reason)
