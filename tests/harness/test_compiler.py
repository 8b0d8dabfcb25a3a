"""Compiling C on first use: what is kept, when it is made anew, and what a complaint says."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from numdrift.harness.compiler import CSource, compile_library, first_error
from numdrift.harness.errors import CompileError, NotAvailable, UsageError

FLAGS = ("-shared", "-fPIC", "-Werror=implicit-function-declaration", "-Wl,--no-undefined")
ANSWER = "int answer(void) { return 42; }\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("NUMDRIFT_CACHE", str(folder))
    monkeypatch.delenv("CC", raising=False)
    return folder


def written(folder: Path, text: str, name: str = "mine.c") -> CSource:
    (folder / name).write_text(text)
    return CSource(folder / name, FLAGS)


def answer(source: CSource) -> int:
    return int(ctypes.CDLL(str(compile_library(source).path)).answer())


def test_a_library_is_made_once_and_kept(tmp_path: Path, cache: Path) -> None:
    source = written(tmp_path, ANSWER)
    assert answer(source) == 42
    first = compile_library(source)
    made = first.path.stat().st_mtime_ns
    assert compile_library(source) == first and first.path.stat().st_mtime_ns == made
    assert first.flags == FLAGS and Path(first.compiler[0]).is_file()
    assert list(cache.iterdir()) == [first.path] and cache.stat().st_mode & 0o777 == 0o700


def test_what_is_kept_does_not_depend_on_where_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    copy = written(tmp_path / "other", ANSWER)
    (tmp_path / "link.c").symlink_to(copy.path)
    linked = CSource(tmp_path / "link.c", FLAGS)
    assert compile_library(written(tmp_path, ANSWER)).path == compile_library(copy).path
    assert answer(linked) == 42


def test_a_change_of_text_flags_header_or_compiler_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "value.h").write_text("#define VALUE 1\n")
    source = written(tmp_path, '#include "value.h"\nint answer(void) { return VALUE; }\n')
    assert answer(source) == 1
    (tmp_path / "value.h").write_text("#define VALUE 2\n")
    assert answer(source) == 2
    changed = written(tmp_path, '#include "value.h"\nint answer(void) { return VALUE + 1; }\n')
    assert answer(changed) == 3
    paths = {compile_library(one).path for one in (changed, CSource(changed.path, (*FLAGS, "-O2")))}
    monkeypatch.setenv("CC", "gcc -O1")
    assert len(paths | {compile_library(changed).path}) == 3


def test_the_first_tuning_that_the_compiler_accepts_is_used(tmp_path: Path) -> None:
    source = written(tmp_path, ANSWER)
    tuned = CSource(source.path, FLAGS, (("-march=no-such-cpu",), ("-O2",), ()))
    assert compile_library(tuned).flags == (*FLAGS, "-O2")
    assert compile_library(tuned) == compile_library(tuned)


WRONG = {
    "int f(void) {\n    return 1\n}\nint g(void) { return unknown; }\n": "mine.c:2: expected ';'",
    "\n\nint f(flot x) { return 0; }\n": "mine.c:3: unknown type name 'flot'",
    '#include "nowhere.h"\n': "mine.c:1: nowhere.h: No such file",
    "int f(void) { return later(); }\n": "mine.c:1: implicit declaration of function 'later'",
    "int later(void);\nint f(void) { return later(); }\n": "undefined reference to `later'",
    "#error not for this machine\n": "mine.c:1: #error not for this machine",
}


@pytest.mark.parametrize("text", WRONG)
def test_the_first_error_alone_is_told(text: str, tmp_path: Path, cache: Path) -> None:
    source = CSource(written(tmp_path, text).path, FLAGS, (("-march=native",), ()))
    with pytest.raises(CompileError) as caught:
        compile_library(source)
    message = str(caught.value)
    assert caught.value.path == source.path and caught.value.complaint.startswith(WRONG[text])
    assert message.startswith(f"{source.path} does not compile: {WRONG[text]}") and "\n" not in message
    assert not list(cache.iterdir())


def test_a_tuning_that_is_refused_does_not_hide_the_error(tmp_path: Path) -> None:
    source = written(tmp_path, "int f(flot x);\n")
    with pytest.raises(CompileError, match="unknown type name"):
        compile_library(CSource(source.path, FLAGS, (("-march=no-such-cpu",), ())))


def test_the_language_of_the_terminal_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with pytest.raises(CompileError, match=r"mine\.c:1: expected"):
        compile_library(written(tmp_path, "int f(\n"))


CLANG = """In file included from /tmp/mine.c:1:
/tmp/mine.h:7:3: warning: unused
/tmp/mine.h:9:1: error: expected identifier or '('
/tmp/mine.c:9:1: error: something else
2 errors generated.
"""


def test_the_complaints_of_other_tools() -> None:
    assert first_error(CLANG) == "mine.h:9: expected identifier or '('"
    assert first_error("cc: fatal error: no input files\ncompilation terminated.\n").startswith("cc: fatal error")
    assert first_error("Killed\n") == "Killed"
    assert first_error("") == ""


@pytest.mark.parametrize(
    ("compiler", "words"),
    [
        ("/nonexistent", "CC='/nonexistent' names no program (unset CC, or set it to a C compiler)"),
        ("'unbalanced", "No closing quotation"),
        ("no-such-cc -O2", "CC='no-such-cc -O2' names no program"),
    ],
)
def test_without_a_compiler_the_remedy_is_named(
    compiler: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(NotAvailable) as caught:
        compile_library(written(tmp_path, ANSWER))
    assert words in str(caught.value)


def test_with_an_empty_path_there_is_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotAvailable, match=r"no C compiler found \(cc, gcc, clang\) .*install one.*CC"):
        compile_library(written(tmp_path, ANSWER))


def test_a_compiler_that_fails_silently_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    with pytest.raises(CompileError, match=r"/bin/false ended with exit status 1"):
        compile_library(written(tmp_path, ANSWER))


def test_a_file_that_cannot_be_read_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.c cannot be read: No such file"):
        compile_library(CSource(tmp_path / "nowhere.c", FLAGS))
    with pytest.raises(UsageError, match="directory"):
        compile_library(CSource(tmp_path, FLAGS))


def test_a_library_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    source = written(tmp_path, ANSWER)
    library = compile_library(source).path
    library.write_bytes(library.read_bytes()[:5000])
    assert compile_library(source).path == library and answer(source) == 42


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(NotAvailable, match=r"another user can write to it.*NUMDRIFT_CACHE"):
        compile_library(written(tmp_path, ANSWER))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMDRIFT_CACHE", str(tmp_path / "file"))
    with pytest.raises(NotAvailable, match="file"):
        compile_library(written(tmp_path, ANSWER))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_library_of_another_user_is_refused(tmp_path: Path) -> None:
    source = written(tmp_path, ANSWER)
    os.chown(compile_library(source).path, 12345, -1)
    with pytest.raises(NotAvailable, match="belongs to another user"):
        compile_library(source)
