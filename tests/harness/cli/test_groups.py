"""A group of commands that is given none of them."""

from __future__ import annotations

import pytest

from numdrift.harness.cli import program


@pytest.mark.parametrize("group", ["runs", "graph", "kernels", "snapshot", "bundle"])
def test_a_group_without_a_command_is_its_help(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["numdrift", group])
    with pytest.raises(SystemExit) as ended:
        program.main()
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert printed.out.startswith(f"Usage: numdrift {group} ") and "Examples:" in printed.out and printed.err == ""
