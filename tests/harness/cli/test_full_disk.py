"""A disk without space is no bug of numdrift."""

from __future__ import annotations

import errno

import pytest

from numdrift.harness.cli import program


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOSPC, 3, "No space left on device (runs/train/config.json): free some space"),
        (errno.EDQUOT, 3, "everything recorded so far is kept"),
        (errno.EIO, program.INTERNAL_ERROR, "this is a bug in numdrift (OSError)"),
    ],
)
def test_a_full_disk_is_one_line(
    number: int, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(number, "No space left on device", "runs/train/config.json")

    monkeypatch.setattr(program.program, "main", fails)
    with pytest.raises(SystemExit) as ended:
        program.main()
    written = capsys.readouterr().err
    assert ended.value.code == code and words in written
    assert ("Traceback" in written) == (code == program.INTERNAL_ERROR)
