"""What a shell is offered after `numdrift kernels ...`, as it asks for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = (
    "import sys; sys.argv = ['numdrift']\n"
    "from numdrift.harness.cli.program import program\n"
    "try:\n"
    "    program.main(prog_name='numdrift', standalone_mode=False)\n"
    "except SystemExit:\n"
    "    pass\n"
    "print('torch' in sys.modules, 'matplotlib' in sys.modules)"
)


def completed(line: str) -> list[str]:
    """What bash gets for the last word of a line; asserts that nothing slow was imported for it."""
    asked = {
        "_NUMDRIFT_COMPLETE": "bash_complete",
        "COMP_WORDS": f"numdrift kernels {line}",
        "COMP_CWORD": str(1 + len(line.split())),
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    *found, slow = done.stdout.splitlines()
    assert slow == "False False"
    return found


@pytest.mark.parametrize("command", ["list", "check", "sweep", "build mine.py --op"])
def test_ops_are_completed_in_the_spelling_that_was_begun(command: str) -> None:
    assert completed(f"{command} gel") == ["plain,gelu", "plain,gelu_backward"]
    assert completed(f"{command} aten::tanh_b") == ["plain,aten::tanh_backward"]


@pytest.mark.parametrize("command", ["check", "sweep"])
def test_kernels_of_the_op_are_completed(command: str) -> None:
    macs = ["mac", "mac_unfused"]
    assert completed(f"{command} tanh_backward --kernel m") == [f"plain,{name}" for name in macs]
    full = [f"plain,tanh_backward={name}" for name in macs]
    assert completed(f"{command} tanh_backward --dtype float16 --kernel tanh_backward=m") == full
    assert completed(f"{command} tanh_backward --kernel ./") == ["file,./"]
    # an op without an entry has those that every op has
    assert completed(f"{command} cumsum --kernel fp") == ["plain,fp64"]
