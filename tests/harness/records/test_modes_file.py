"""Modes in a TOML file are those that the same text on a command line would be."""

from __future__ import annotations

from pathlib import Path

import pytest

from numdrift.harness.errors import ModeError, UsageError
from numdrift.harness.records.modes.mode_spec import parse_mode, parse_modes

FILE = """
[before]
base = "cpu"
git = "HEAD~1"

[four]
base = "cpu"
"args+" = ["--names", "a,b", "--title", "two words", "seed=1,threads=2"]
threads = 2
timeout = 1.5
env.FAULT = "1"
kernel = { tanh_backward = "fma" }

[scalar]
base = "compile"
inductor.cpp.simdlen = 1
allow_rnn = true
"""


def test_the_modes_of_a_file_stand_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "modes.toml"
    path.write_text(FILE)

    modes = parse_modes("cpu", [f"@{path}", "last=cpu,seed=1"])

    words = "--names 'a,b' --title 'two words' 'seed=1,threads=2'"
    four = f"four=cpu,args+={words},threads=2,timeout=1.5,env.FAULT=1"
    assert modes == [
        parse_mode("cpu"),
        parse_mode("before=cpu,git=HEAD~1"),
        parse_mode(f"{four},kernel.tanh_backward=fma"),
        parse_mode("scalar=compile,inductor.cpp.simdlen=1,allow_rnn=on"),
        parse_mode("last=cpu,seed=1"),
    ]
    assert modes[2].arguments(()) == ("--names", "a,b", "--title", "two words", "seed=1,threads=2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base = ", "modes.toml is not a TOML file: "),
        ("", 'modes.toml has no mode; a mode is a table, such as [before] with base = "cpu"'),
        ('base = "cpu"', "'base' is not a mode; a mode is a table"),
        ("[a]\nthreads = 1", "the mode 'a' has no base"),
        ('[a]\nbase = "cpu"\nthreads = [1]', "threads of the mode 'a' is a list; write a text or a number"),
        ('[a]\nbase = "cpu"\nenv.X = "1,2"', "env.X of the mode 'a' has a comma"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "modes.toml"
    path.write_text(text)

    with pytest.raises(UsageError) as caught:
        parse_modes(None, [f"@{path}"])

    assert said in str(caught.value)


def test_what_the_grammar_refuses_is_refused_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "modes.toml").write_text('[a]\nbase = "cpu"\nthread = 1')

    with pytest.raises(ModeError, match="there is no key 'thread'; did you mean"):
        parse_modes(None, [f"@{tmp_path / 'modes.toml'}"])
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        parse_modes(None, ["@none.toml"])
