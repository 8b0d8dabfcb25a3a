from __future__ import annotations

import pytest
import torch

from numdrift.harness.script.main_module import end_of, first_line


def test_what_an_op_raised_under_a_compiler_is_said() -> None:
    @torch.compile(backend="eager")
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y

    with pytest.raises(RuntimeError) as raised:
        product(torch.ones(1, 4), torch.ones(3, 2))
    torch.compiler.reset()

    assert "[1, 4] X [3, 2]" in first_line(raised.value)
    assert first_line(raised.value).startswith("TorchRuntimeError: ")


def test_the_first_line_of_any_other_error_is_its_message() -> None:
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"
    assert end_of(MemoryError(), "train.py").status == "out-of-memory"
