"""The language of `--inputs`: shapes, dtypes and distributions of a call's inputs, read without torch.

    randn(4, 8), randint(0, 10, (4,)), dim=-1, weight=rand(8, dtype=bfloat16)

An input is a tensor or a plain Python value; `name=` passes it by name. A tensor's function and arguments are those of
torch: `randn`, `rand`, `zeros`, `ones`, `randint`, `full`, `arange`, `uniform(low, high, shape)` and `normal(mean, std,
shape)`. A tensor has two further arguments: `layout="transposed"`, `"expanded"` or `"sliced"`, and `grad=False`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from ...errors import UsageError, nearest

FUNCTIONS = ("randn", "rand", "zeros", "ones", "randint", "full", "arange", "uniform", "normal")
LAYOUTS = ("transposed", "expanded", "sliced")
DTYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
    "complex128",
)  # fmt: skip
NUMBERS = {"inf": float("inf"), "nan": float("nan")}
EXAMPLE = "as in 'randn(4, 8), randint(0, 10, (4,))'"


@dataclass(frozen=True, slots=True)
class DescribedInput:
    """An input of a call.

    name: the name by which it is passed, or "" for a positional one
    function: the function that makes the tensor, or "" for a plain value
    numbers: the function's numbers before the shape, such as the bounds of `randint`
    shape: the tensor's shape
    dtype, layout: "" for the function's own
    value: the plain value
    grad: whether its gradient is computed, if it has one
    """

    name: str = ""
    function: str = ""
    numbers: tuple[float, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""
    layout: str = ""
    value: Any = None
    grad: bool = True


def described_inputs(text: str) -> tuple[DescribedInput, ...]:
    """Read `--inputs`. Raises UsageError, which quotes the wrong part."""
    try:
        call = ast.parse(f"inputs({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"--inputs {text!r} cannot be read; write tensors and values, {EXAMPLE}") from None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "inputs":
        raise UsageError(f"--inputs {text!r} cannot be read; write tensors and values, {EXAMPLE}")
    if not call.args and not call.keywords:
        raise UsageError(f"--inputs describes no input; write tensors and values, {EXAMPLE}")
    positional = [_input("", node) for node in call.args]
    return (*positional, *(_input(keyword.arg or "", keyword.value) for keyword in call.keywords))


def _input(name: str, node: ast.expr) -> DescribedInput:
    written = ast.unparse(node)
    if not isinstance(node, ast.Call):
        return DescribedInput(name, value=_value(node, written))
    function = ast.unparse(node.func).removeprefix("torch.")
    if function not in FUNCTIONS:
        raise UsageError(f"--inputs: there is no function {function!r}; {nearest(function, FUNCTIONS)}")
    dtypes = [ast.unparse(keyword.value).strip("'\"") for keyword in node.keywords if keyword.arg == "dtype"]
    dtype = "".join(dtypes).removeprefix("torch.")
    options = {
        keyword.arg or "**": _value(keyword.value, written) for keyword in node.keywords if keyword.arg != "dtype"
    }
    unknown = next((key for key in options if key not in ("layout", "grad")), None)
    if unknown is not None:
        raise UsageError(f"--inputs: {written} has an argument {unknown!r}; write dtype, layout or grad")
    layout = options.get("layout", "")
    if dtype and dtype not in DTYPES:
        raise UsageError(f"--inputs: {written} has no dtype that torch has; {nearest(dtype, DTYPES)}")
    if layout and layout not in LAYOUTS:
        raise UsageError(f"--inputs: {written} has no layout of {', '.join(LAYOUTS)}")
    numbers, shape = _numbers_and_shape(function, [_value(argument, written) for argument in node.args], written)
    return DescribedInput(name, function, numbers, shape, dtype, layout, grad=bool(options.get("grad", True)))


def _numbers_and_shape(function: str, arguments: list[Any], written: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Split the arguments of a function into its numbers and its shape."""
    if function == "arange":
        numbers, rest = arguments, []
    elif function == "full":  # torch has the shape first
        numbers, rest = arguments[1:], arguments[:1]
    elif function == "randint" and len(arguments) == 2:  # torch's `randint(high, size)`
        numbers, rest = [0, arguments[0]], arguments[1:]
    else:
        count = {"randint": 2, "uniform": 2, "normal": 2}.get(function, 0)
        numbers, rest = arguments[:count], arguments[count:]
    shape = tuple(rest[0]) if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else tuple(rest)
    needed = {"randint": 2, "uniform": 2, "normal": 2, "full": 1}.get(function, 0)
    are_numbers = all(isinstance(number, (int, float, bool)) for number in numbers)
    if len(numbers) < needed or not are_numbers or (function == "arange" and not 1 <= len(numbers) <= 3):
        raise UsageError(f"--inputs: {written} lacks its numbers; write them as torch does, {EXAMPLE}")
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in shape):
        raise UsageError(f"--inputs: {written} has no shape of whole numbers; write it as torch does, {EXAMPLE}")
    return tuple(numbers), shape


def _value(node: ast.expr, written: str) -> Any:
    """Return a plain value: a number, text, a tuple, a list, or the name of a dtype as text."""
    if isinstance(node, ast.Name) and node.id in NUMBERS:
        return NUMBERS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, written)
        if isinstance(inner, (int, float)):
            return -inner
    if ast.unparse(node).removeprefix("torch.") in DTYPES:
        return ast.unparse(node)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(f"--inputs: {ast.unparse(node)} in {written} is no tensor or plain value; {EXAMPLE}") from None
