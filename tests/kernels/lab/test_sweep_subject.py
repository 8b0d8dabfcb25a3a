from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift.harness.errors import KernelError, KernelNotFound, NotAvailable, UsageError
from numdrift.kernels.lab.sweep_candidates import candidates
from numdrift.kernels.lab.sweep_domain import ENCODINGS
from numdrift.kernels.lab.sweep_subject import Subject, roundings, subject_of
from numdrift.kernels.registry import Kernel, KernelRegistry, Operation

FLOAT32 = ENCODINGS["float32"]


def received(subject: Subject) -> tuple[list[Any], dict[str, Any]]:
    """What a kernel gets for the inputs 2 and 3, tensors as lists."""
    args, kwargs = subject.arguments(torch.tensor([2.0, 3.0]))

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, torch.Tensor) else value

    return [plain(value) for value in args], {name: plain(value) for name, value in kwargs.items()}


@pytest.mark.parametrize(
    ("op", "vary", "hold", "args", "kwargs"),
    [
        ("tanh", None, [], [[2.0, 3.0]], {}),
        ("tanh_backward", None, [], [[1.0, 1.0], [2.0, 3.0]], {}),
        ("tanh_backward", "grad_output", ["output=0.5"], [[2.0, 3.0], [0.5, 0.5]], {}),
        ("gelu", None, [], [[2.0, 3.0]], {}),
        ("gelu", None, ["approximate=tanh"], [[2.0, 3.0]], {"approximate": "tanh"}),
        ("add", None, ["alpha=2"], [[1.0, 1.0], [2.0, 3.0]], {"alpha": 2}),
        ("pow.Tensor_Scalar", None, ["exponent=2.5"], [[2.0, 3.0], 2.5], {}),
        ("elu", None, ["scale=2"], [[2.0, 3.0], 1, 2], {}),
        (
            "leaky_relu_backward", "self", ["negative_slope=0.5", "self_is_result=false"],
            [[1.0, 1.0], [2.0, 3.0], 0.5, False], {},
        ),
    ],
)  # fmt: skip
def test_arguments_are_passed_as_the_dispatcher_does(
    op: str, vary: str | None, hold: list[str], args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert received(subject_of(op, FLOAT32, vary, hold)) == (args, kwargs)


def test_what_is_held_is_rounded_to_the_dtype() -> None:
    subject = subject_of("tanh_backward", ENCODINGS["bfloat16"], hold=["grad_output=0.1"])
    assert dict(subject.held) == {"grad_output": torch.tensor(0.1).bfloat16().item()}


@pytest.mark.parametrize(
    ("dtype", "hold", "said"),
    [
        ("bfloat16", ["output=0.999"], ["output=0.999 is 1 in bfloat16"]),
        ("float16", ["output=1e5"], ["output=1e5 is inf in float16"]),
        ("float32", ["output=1e50"], ["output=1e50 is inf in float32"]),
        ("bfloat16", ["output=0.5"], []),
        ("float32", ["output=0.1"], []),
        ("float32", ["output=inf"], []),
        ("float32", ["output=nan"], []),
    ],
)
def test_what_rounding_changes_is_said(dtype: str, hold: list[str], said: list[str]) -> None:
    assert roundings(subject_of("tanh_backward", ENCODINGS[dtype], "grad_output", hold), hold) == said


@pytest.mark.parametrize(
    ("op", "vary", "hold", "words"),
    [
        ("tanh", "x", [], "did you mean|known: self"),
        ("tanh_backward", "outputs", [], "did you mean 'output'"),
        ("tanh_backward", None, ["output=1"], "output is the argument that varies"),
        ("tanh_backward", None, ["grad=1"], "did you mean 'grad_output'"),
        ("tanh_backward", None, ["grad_output"], "not NAME=VALUE"),
        ("tanh_backward", None, ["grad_output=x"], "must be a number"),
        ("tanh", None, ["x=1"], "it has only self"),
        ("pow.Tensor_Scalar", None, [], "needs a value for exponent .*--hold exponent=1"),
        ("gelu", None, ["approximate=tan"], "cannot be called .*approximate"),
        ("tanh_", None, [], "writes to its arguments: sweep tanh"),
        ("sum", None, [], "returns shape"),
        ("_softmax", None, ["dim=0", "half_to_float=false"], "mixes its inputs"),
        ("cumsum", None, ["dim=0"], "mixes its inputs"),
        ("frexp", None, [], "does not return a single tensor"),
        ("isnan", None, [], "not floating-point numbers"),
        ("bernoulli", None, [], "random"),
        ("bernoulli_", None, [], "random"),
        ("mm", None, [], "mixes its inputs: .*; measure it with `numdrift kernels check mm`"),
        ("_softmax", None, [], "mixes its inputs: .*; measure it with `numdrift kernels check _softmax`"),
        ("cumsum", None, [], "mixes its inputs"),
        ("batch_norm", None, [], "takes optional tensors"),
        ("native_batch_norm", None, [], "only ops that work element by element"),
        ("convolution", None, [], "takes lists"),
        ("ones", None, ["size=3"], "takes no tensor"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_one_line(op: str, vary: str | None, hold: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        subject_of(op, FLOAT32, vary, hold)
    assert "\n" not in str(raised.value)


def test_an_unknown_op_or_overload_is_told_with_near_ones() -> None:
    with pytest.raises(KernelNotFound, match="tanh_backward"):
        subject_of("tanh_backwards", FLOAT32)
    with pytest.raises(KernelNotFound, match="Tensor_Scalar"):
        subject_of("pow.Tensor_Scaler", FLOAT32)


def registry_with(**targets: str) -> KernelRegistry:
    """A registry in which tanh has the named kernels besides those that every op has."""
    registry = KernelRegistry()
    operation = Operation("tanh", "activation", "tanh")
    dtypes = {"narrow": ("bfloat16",)}
    registry.register(
        operation,
        [
            Kernel("tanh", name, "", "", target, dtypes=dtypes.get(name, ("float32", "float16")))
            for name, target in targets.items()
        ],
    )
    return registry


def test_every_kernel_that_works_is_a_candidate_and_the_others_are_named() -> None:
    registry = registry_with(sine="torch:sin", narrow="torch:sin", raising="torch:matmul", counting="builtins:len")
    found, notes = candidates(registry, subject_of("tanh", FLOAT32), [], every=True)
    assert [one.kernel for one in found] == ["aten", "sine", "decomposed", "fp64"]
    narrow, raising, counting = notes
    assert "tanh=narrow does not compute float32" in narrow and "bfloat16" in narrow
    assert "tanh=raising raised TypeError" in raising
    assert "tanh=counting returned a int instead of float32[16]" in counting


def test_only_aten_is_a_candidate_unless_others_are_asked_for() -> None:
    subject = subject_of("tanh", FLOAT32)
    registry = registry_with(sine="torch:sin")
    assert [one.kernel for one in candidates(registry, subject, [], every=False)[0]] == ["aten"]
    asked = candidates(registry, subject, ["sine", "sine"], every=False)[0]
    assert [one.kernel for one in asked] == ["sine"]


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("sin", KernelNotFound, "did you mean 'sine'"),
        ("raising", KernelError, "tanh=raising raised TypeError"),
        ("shrinking", KernelError, r"returned float32\[\] instead of float32\[16\]"),
        ("sorting", KernelError, r"returned int64\[16\] instead of float32\[16\]"),
        ("narrow", UsageError, "does not compute float32 on a CPU; it supports only bfloat16"),
    ],
)
def test_a_kernel_that_was_asked_for_and_does_not_work_is_an_error(
    name: str, error: type[Exception], words: str
) -> None:
    registry = registry_with(
        sine="torch:sin", raising="torch:matmul", shrinking="torch:sum", sorting="torch:argsort",
        narrow="torch:sin",
    )  # fmt: skip
    with pytest.raises(error, match=words):
        candidates(registry, subject_of("tanh", FLOAT32), [name], every=False)


def test_a_decomposition_that_torch_lacks_is_left_out_or_an_error() -> None:
    subject = subject_of("special_airy_ai", FLOAT32)
    found, notes = candidates(KernelRegistry(), subject, [], every=True)
    assert [one.kernel for one in found] == ["aten", "fp64"]
    assert len(notes) == 1 and "special_airy_ai=decomposed is not available" in notes[0]
    with pytest.raises(NotAvailable, match="special_airy_ai=decomposed"):
        candidates(KernelRegistry(), subject, ["decomposed"], every=True)


@pytest.mark.slow
def test_a_file_of_the_users_is_a_candidate_and_its_content_counts(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import torch\ndef tanh(self):\n    return torch.sin(self)\n")
    subject = subject_of("tanh", FLOAT32)
    (first,), _ = candidates(KernelRegistry(), subject, [f"tanh={mine}"], every=False)
    assert first.kernel == "mine"
    inputs = torch.linspace(0, 1, 9)
    assert first.results(inputs).tolist() == torch.sin(inputs).tolist()
    mine.write_text("import torch\ndef tanh(self):\n    return torch.cos(self)\n")
    (second,), _ = candidates(KernelRegistry(), subject, [str(mine)], every=False)
    assert second.source != first.source


def test_a_file_that_crashes_the_process_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import os\ndef tanh(self):\n    os.abort()\n")
    with pytest.raises(KernelError, match=r"mine\.py"):
        candidates(KernelRegistry(), subject_of("tanh", FLOAT32), [str(mine)], every=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nos._exit(3)\n", r"mine\.py ended its process with exit code 3 when it was loaded"),
        ("while True: pass\n", r"mine\.py was not loaded within 5 s"),
    ],
)
def test_a_file_that_ends_or_holds_the_process_when_it_is_loaded_is_an_error(
    text: str, words: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(text)
    limit = 5 if "while" in text else 120
    with pytest.raises(UsageError, match=words):
        candidates(KernelRegistry(), subject_of("tanh", FLOAT32), [str(mine)], every=False, seconds=limit)


@pytest.mark.slow
def test_a_file_named_as_another_kernel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    paths = [tmp_path / name for name in ("sine.py", "mine.py", "a/mine.py")]
    for path in paths:
        path.write_text("def tanh(self):\n    return self.sin()\n")
    registry, subject = registry_with(sine="torch:sin"), subject_of("tanh", FLOAT32)
    with pytest.raises(UsageError, match=r"op tanh already has a kernel 'sine'; give .*sine\.py another"):
        candidates(registry, subject, [str(paths[0])], every=False)
    with pytest.raises(UsageError, match=r"is also named 'mine'; give .*a/mine\.py another name"):
        candidates(registry, subject, [str(path) for path in paths[1:]], every=False)


@pytest.mark.slow
def test_what_lies_beside_a_file_and_is_imported_counts(tmp_path: Path) -> None:
    mine, helper = tmp_path / "mine.py", tmp_path / "helper.py"
    mine.write_text("import helper\ndef tanh(self):\n    return helper.f(self)\n")
    subject = subject_of("tanh", FLOAT32)
    sources = []
    for name in ("sin", "cos"):
        helper.write_text(f"def f(x):\n    return x.{name}()\n")
        (found,), _ = candidates(KernelRegistry(), subject, [str(mine)], every=False)
        sources.append(found.source)
    assert sources[0] != sources[1]


def test_a_kernel_of_another_op_is_refused() -> None:
    with pytest.raises(UsageError, match="is a kernel of 'gelu', but the sweep measures 'tanh'"):
        candidates(KernelRegistry(), subject_of("tanh", FLOAT32), ["gelu=mine.c"], every=False)
