"""Try a user's kernel on a small input, in a separate process because it may crash.

python -m numdrift.kernels.lab.trial FILE OP RESULT OPENER writes the outcome to RESULT, as JSON. If OP is empty, the
outcome contains only the dtypes for which the file exports a function.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from numdrift.harness.compiler import compile_library, find_compiler
from numdrift.harness.errors import KernelError, NotAvailable, NumdriftError, UsageError
from numdrift.harness.torch_private.operators import decomposition_of, find_overload, is_random

from ..expectation import Expectations, ExpectedTensor, tensors_in
from ..native import library
from ..native.binding import KernelSignature, exported, signature_of
from ..native.source import user_source
from ..registry import ANY_DEVICE, Kernel, KernelRegistry, load_target
from ..user import user_kernel
from .arguments import generated, overloads
from .calls import LabCall, Output, outputs, same, unwritten
from .reference import draws

SAMPLES = 16
"""The approximate number of elements on which ops that are not elementwise are tried."""

NEAR = 1 / 16
"""The relative difference up to which two results count as near each other. For any kernel of an op, most results are
near aten's."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The dtypes that a file's kernel computes, the outcome of the trial for each dtype in words, and warnings.

    `expects` is the function declaration that the op expects. If there is an `error`, the other fields are empty and
    `exit_code` is the exit code of that error.
    """

    dtypes: tuple[str, ...] = ()
    expects: str = ""
    outcomes: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    exit_code: int = 0


def tried(path: Path, op: str, opener: str = "") -> Trial:
    """Load the file and, if an op is named, call the kernel in each dtype. `opener` is as in `IsolatedKernel`."""
    try:
        if not op:
            dtypes = tuple(exported(path, compile_library(user_source(path))))
            if not dtypes:
                how = "--op OP prints their declarations"
                raise UsageError(f"{path} defines neither kernel_float32 nor kernel_float64; {how}")
            return Trial(dtypes=dtypes)
        kernel, signature = user_kernel(op, path), signature_of(op)
        expects = signature.in_c(kernel.dtypes[0]) if kernel.native else signature.in_python()
        outcomes, warnings = [], []
        for dtype in kernel.dtypes:
            outcome, warning = _outcome(kernel, signature, dtype, opener)
            outcomes.append((dtype, outcome))
            warnings += [warning] if warning else []
        return Trial(kernel.dtypes, expects, tuple(outcomes), tuple(dict.fromkeys(warnings)))
    except NumdriftError as error:
        return Trial(error=str(error), exit_code=error.exit_code)


def _outcome(kernel: Kernel, signature: KernelSignature, name: str, opener: str) -> tuple[str, str]:
    """Call the kernel and the op on the same input; return the outcome, and a warning or "".

    Raises UsageError for a kernel that fails.
    """
    op, dtype = kernel.op, getattr(torch, name)
    not_tried = "not tried on an input: "
    if signature.is_elementwise():
        args, kwargs = signature.example(dtype)
        calls = [LabCall(tuple(args), kwargs)]
    else:
        try:
            calls = [call for case in generated(op, ("random",), dtype, SAMPLES, 0) for call in case.calls]
        except UsageError:
            if is_random(signature.overload):
                return f"{not_tried}{op} draws random numbers", ""
            measure = f"numdrift kernels check {op} --kernel {op}={Path(kernel.path).name} --captured RUN measures it"
            return f"{not_tried}{op} does not work element by element; {measure}", ""
        if draws(op, calls[0]):
            return f"{not_tried}{op} draws random numbers", ""
    device = "cpu" if kernel.supports(name, "cpu") else kernel.devices[0]
    aten = KernelRegistry().kernel(op, "aten")
    try:
        if opener:
            load_target(opener)([device])
        wanted = attempt(aten, [call.on(device) for call in calls], device)
    except NotAvailable as error:
        return f"{not_tried}{error.why}", ""
    except (
        RuntimeError,
        AssertionError,
        ImportError,
        KernelError,
    ) as error:  # for example, torch was built without the device
        return f"{not_tried}{_line(error, aten)}", ""
    try:
        got = attempt(kernel, calls, device)
    except KernelError as error:
        raise UsageError(f"{kernel.path} {_line(error, kernel)}") from error
    pairs = [
        pair
        for results in zip(got, wanted, strict=True)
        for outputs in zip(*results, strict=True)
        for pair in zip(outputs[0].tensors, outputs[1].tensors, strict=True)
    ]
    total = sum(value.numel() for value, _ in pairs)
    equal = sum(int(same(value, wanted_value).sum()) for value, wanted_value in pairs)
    near = sum(
        int(torch.isclose(value, wanted_value, rtol=NEAR, atol=0, equal_nan=True).sum())
        for value, wanted_value in pairs
    )
    warning = f"{kernel.path}: is this the op's kernel? none of {total} elements is near aten's result"
    return f"{equal} of {total} elements equal aten's", warning if total and not near else ""


def _line(error: Exception, kernel: Kernel) -> str:
    text = str(error).removeprefix(f"kernel {kernel.op}={kernel.name} ")
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def main(path: str, op: str, result: str, opener: str = "") -> None:
    Path(result).write_text(json.dumps(asdict(tried(Path(path), op, opener))), encoding="utf-8")


# Call a kernel as the op would be called, and refuse results that the op would never return.

NO_KERNEL = "Could not run 'aten::"
"""The beginning of torch's error for an op without a kernel on a device."""


def attempt(kernel: Kernel, calls: Sequence[LabCall], device: str) -> list[list[Output]]:
    """Return the outputs of each call, on the CPU; the calls themselves stay unchanged.

    Raises KernelError if the kernel raises an error, returns shapes or dtypes that differ from the op's, or writes to
    arguments that the op does not write to. Raises NotAvailable if the kernel does not support the dtype or the device,
    if torch's own op cannot be called for comparison, or if the kernel itself raises NotAvailable.
    """
    name = f"{kernel.op}={kernel.name}"
    for call in calls:
        if not kernel.supports(_name(call.dtype()), device.partition(":")[0]):
            where = "any device"
            if kernel.devices != ANY_DEVICE:
                where = f"devices of type {', '.join(kernel.devices)}"
            raise NotAvailable(f"kernel {name}", f"it computes {', '.join(kernel.dtypes)} on {where}")
    function, expectations = kernel.load(), Expectations()
    results = []
    for call in calls:
        device_call = call.on(device)
        overload = find_overload(kernel.op, device_call.args, device_call.kwargs)
        own = device_call.copy()
        try:
            result = function(*own.args, **own.kwargs)
        except NotAvailable:
            raise
        except Exception as error:
            if isinstance(error, NotImplementedError) and str(error).startswith(NO_KERNEL):
                raise NotAvailable(f"kernel {name}", str(error).partition(". ")[0]) from error
            lines = str(error).strip().splitlines()
            description = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
            raise KernelError(name, f"raised {description}") from error

        try:
            expected = expectations.of(overload, device_call.args, device_call.kwargs)
        except NotImplementedError:
            raise NotAvailable(f"kernel {name}", f"torch has no {kernel.op} on {device} to compare it with") from None
        except RuntimeError as error:
            why = f"torch's own {kernel.op} refuses these arguments on {device}: {str(error).strip().splitlines()[0]}"
            raise NotAvailable(f"kernel {name}", why) from None
        _require_alike(name, list(tensors_in(result)), expected)
        before = dict(unwritten(overload, device_call))
        for argument, value in unwritten(overload, own):
            pairs = zip(tensors_in(before[argument]), tensors_in(value), strict=True)
            if not all(
                original.shape == current.shape and bool(same(original, current).all()) for original, current in pairs
            ):
                raise KernelError(name, f"wrote to its argument {argument!r}, which the op leaves unchanged")
        results.append(
            [
                Output(output.name, tuple(tensor.detach().to("cpu") for tensor in output.tensors))
                for output in outputs(overload, own, result)
            ]
        )
    return results


def _require_alike(kernel: str, tensors: Sequence[torch.Tensor], expected: Sequence[ExpectedTensor]) -> None:
    """Raise KernelError if the number, shapes or dtypes of the tensors differ from those that the op returns."""
    if len(tensors) != len(expected):
        count = "1 tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
        raise KernelError(kernel, f"returned {count}, but the op returns {len(expected)}")
    for position, (tensor, wanted) in enumerate(zip(tensors, expected, strict=True)):
        which = f" as output {position}" if len(expected) > 1 else ""
        if tuple(tensor.shape) != wanted.shape:
            shapes = f"shape {list(tensor.shape)}{which}, but the op returns {list(wanted.shape)}"
            raise KernelError(kernel, f"returned {shapes}")
        if tensor.dtype != wanted.dtype:
            raise KernelError(
                kernel, f"returned {_name(tensor.dtype)}{which}, but the op returns {_name(wanted.dtype)}"
            )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# The check that a kernel can run on this machine.


def why_not(kernel: Kernel) -> str:
    """Return the reason why a kernel cannot run on this machine, or "" if it can. Raises KernelNotFound for an op that
    torch does not have."""
    op_overloads = overloads(kernel.op)
    runs_here = kernel.devices == ANY_DEVICE or "cpu" in kernel.devices
    for device in () if runs_here else kernel.devices:
        with suppress(RuntimeError, AttributeError):  # torch was built without the device
            runs_here = runs_here or bool(torch.get_device_module(device).is_available())
    if not runs_here:
        return f"needs a {' or '.join(kernel.devices)} device"
    if kernel.needs_compiler:
        try:
            find_compiler()
        except NotAvailable as error:
            return error.why
    generic = kernel.of_any_op and kernel.name == "decomposed"
    if generic and not any(decomposition_of(overload) for overload in op_overloads):
        return "torch ships no decomposition"
    return ""


def native_status() -> str:
    """Describe whether C code or torch formulas compute the native kernels."""
    return library.status()


if __name__ == "__main__":
    main(*sys.argv[1:])
