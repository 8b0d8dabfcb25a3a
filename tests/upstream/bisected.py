"""PyTorch's CompilerBisector on the calls of a reproducer: what it names, if the compiled calls differ from the eager ones.

    python -m tests.upstream.bisected tests/upstream/cases/issue_197895.py

A call is good if the results of the compiled function are within TOLERANCE of the eager ones, as in the example of the
bisector's own help. The calls are those that `numdrift check` makes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch._inductor.compiler_bisector import CompilerBisector

from numdrift.harness.script.calls.call_steps import execute, expected_results
from numdrift.harness.script.calls.captured_calls import CallCapture
from numdrift.harness.script.calls.planned_call import PlannedCall

TOLERANCE = 1e-4


def main(argv: list[str]) -> int:
    calls = captured(Path(argv[0]))
    expected = [expected_results(call) for call in calls]
    result = CompilerBisector.do_bisect(lambda: is_good(calls, expected))
    print(f"Bisection complete: {result or 'no issue found'}")
    return 0


def captured(script: Path) -> list[PlannedCall]:
    capture = CallCapture(str(script))
    try:
        with capture.capturing():
            exec(compile(script.read_bytes(), str(script), "exec"), {"__name__": "__main__"})  # noqa: S102
    except Exception as error:  # noqa: BLE001, a reproducer may end with an assertion that fails
        print(error, file=sys.stderr)
    return capture.compiled


def is_good(calls: list[PlannedCall], expected: list[dict[str, torch.Tensor] | None]) -> bool:
    torch._dynamo.reset()
    compiled = {id(call.function): torch.compile(call.function, **call.compiled_with) for call in calls}
    for call, results in zip(calls, expected, strict=True):
        call.state.restore()
        try:
            made = execute(call, compiled[id(call.function)], "").results()
        except Exception:  # noqa: BLE001, an error where eager returns is bad
            return False
        if (
            results is None
            or made.keys() != results.keys()
            or any(not is_close(made[name], results[name]) for name in results)
        ):
            return False
    return True


def is_close(value: torch.Tensor, expected: torch.Tensor) -> bool:
    if value.shape != expected.shape or value.dtype != expected.dtype:
        return False
    return torch.allclose(value, expected, TOLERANCE, TOLERANCE, equal_nan=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
