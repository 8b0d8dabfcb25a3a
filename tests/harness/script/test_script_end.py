from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from numdrift.harness.script.main_module import ScriptEnd, end_of, first_line
from numdrift.harness.torch_private.deferred.lazy import start_lazy_backend


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


def raised_by(source: str, **names: object) -> ScriptEnd:
    with pytest.raises(RuntimeError) as raised:
        exec(compile(source, __file__, "exec"), names)  # noqa: S102, a script of this test
    end = end_of(raised.value, __file__)
    names.clear()  # no tensor is left whose graph cannot be executed
    del raised
    gc.collect()
    return end


def test_an_error_of_a_lazy_graph_has_the_line_that_executes_it() -> None:
    # given: the product is of the first line, and the lazy core computes it where its value is asked for
    start_lazy_backend()
    x = torch.ones(2, 2, device="lazy", dtype=torch.float64)
    end = raised_by("y = x @ w\n\ny.cpu()", x=x, w=torch.ones(2, 2, device="lazy"))
    where = " (this line executes the graph; the op itself may be on an earlier line)"
    assert f"test_script_end.py:3){where}" in end.message
    # the lazy core keeps the error, and raises it once more where the next graph is executed: not in another test
    with suppress(RuntimeError):
        (torch.ones(1, device="lazy") + 1).cpu()


@pytest.mark.parametrize(("number", "fails"), [("0.5", True), ("torch.tensor(0.5)", False)])
def test_a_number_that_the_lazy_core_takes_for_double_is_told_with_its_remedy(number: str, fails: bool) -> None:
    start_lazy_backend()
    x = torch.ones(2, 2, device="lazy")
    source = f"half = {number} * x.mean()\n(half.expand(2, 2) @ x).cpu()"
    if not fails:
        exec(compile(source, __file__, "exec"), {"x": x, "torch": torch})  # noqa: S102, a script of this test
        return
    message = raised_by(source, x=x).message
    assert "float != double" in message or "double != float" in message
    assert "test_script_end.py:2)" in message and message.endswith("write torch.tensor(0.5) * loss instead")
    with suppress(RuntimeError):
        (torch.ones(1, device="lazy") + 1).cpu()


@torch.jit.script
def scripted_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


def test_an_error_of_the_scripts_own_torchscript_has_its_line() -> None:
    end = raised_by("f(x, x)", f=scripted_product, x=torch.ones(1, 2))
    assert end.message.endswith("test_script_end.py:1)")


def test_what_fails_in_torchscript_or_has_no_kernel_is_one_sentence() -> None:
    interpreter = (
        "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call "
        "last):\nRuntimeError: expected scalar type Double but found Float\n"
    )
    assert first_line(RuntimeError(interpreter)) == "RuntimeError: expected scalar type Double but found Float"
    without = (
        "Could not run 'aten::f' with arguments from the 'SparseLazy' backend. This could be because the operator "
        "doesn't exist for this backend, or was omitted during the selective/custom build process.\nmore"
    )
    said = "NotImplementedError: Could not run 'aten::f' with arguments from the 'SparseLazy' backend."
    assert first_line(NotImplementedError(without)) == said


def test_the_place_is_the_innermost_of_the_users_files_and_the_scripts_line(tmp_path: Path) -> None:
    model, train, names = tmp_path / "model.py", tmp_path / "train.py", dict[str, object]()
    exec(compile("import torch\n\ndef forward(x):\n    return torch.ones(2) @ x\n", model, "exec"), names)  # noqa: S102
    with pytest.raises(TypeError) as raised:
        exec(compile("\n\n\n\nforward(None)\n", train, "exec"), names)  # noqa: S102
    assert end_of(raised.value, str(train)).message.endswith(f" ({model}:4 <- {train}:5)")
    assert end_of(raised.value, str(model)).message.endswith(f" ({model}:4)")


MIXED = (
    "Expected all tensors to be on the same device, but found at least two devices, lazy:0 and cpu!",
    "Function _UncheckedAssignBackward returned an invalid gradient at index 0 - expected device cpu but got lazy:0",
    "Input tensor is not a lazy tensor: torch.FloatTensor",
)


@pytest.mark.parametrize("message", MIXED)
def test_tensors_on_two_devices_are_told_with_their_remedy(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "lazy")
    assert 'os.environ["DEVICE"]' in end_of(RuntimeError(message), "train.py").message
    assert "DEVICE" not in end_of(RuntimeError("size mismatch"), "train.py").message
    # on the CPU there is nothing to move
    monkeypatch.setenv("DEVICE", "cpu")
    assert "DEVICE" not in end_of(RuntimeError(message), "train.py").message
