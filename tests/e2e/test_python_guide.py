"""docs/guide/python.md: every example is executed, in its order, and prints what the page says it does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ..conftest import ROOT
from ..processes.forked import python

GUIDE = ROOT / "docs" / "guide" / "python.md"
MARK = "=== {}"

EXPECTED = (
    (1, "complete"),
    (2, "True"),
    (3, "None"),
    (4, "beyond-rounding 0 cpu"),
    (4, "aten.tanh_backward"),
    (5, "beyond-rounding True"),
    (5, "aten.tanh_backward"),
    (7, "there is no mode 'compiel'; did you mean 'compile'?"),
)
"""Words that the example of this number prints."""


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_every_example_is_python() -> None:
    assert len(examples()) == 8
    for example in examples():
        ast.parse(example)


@pytest.mark.slow
def test_every_example_runs(tmp_path: Path) -> None:
    # given the script of the page, and its other examples one after the other
    script, *others = examples()
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "page.py").write_text(
        "\n".join(f'print("{MARK.format(number)}")\n{text}' for number, text in enumerate(others, 1))
    )
    # when
    done = python(tmp_path, "page.py", NUMDRIFT_PRELOAD="0")
    # then
    assert done.returncode == 0, done.stderr
    printed = re.split(r"^=== \d+$", done.stdout, flags=re.MULTILINE)
    for number, words in EXPECTED:
        assert words in printed[number], (number, printed[number])
    assert python(tmp_path, "train.py", "2").returncode == 0
