"""Shrinks the standalone script of a culprit: the smallest shapes and the simplest values that still show it.

    python -m numdrift.harness.localize.scripts.shrunk_script culprit-1.py shrunk-1.py

First, each size that dimensions of the inputs share is halved as long as the two sides still differ.
Then each tensor is set to zeros, to ones, or to rounded values, and at last each element to zero, which is a `ddmin`
(Zeller, IEEE TSE 28, 2002) over the elements. Values that are left are written into the script, which needs no other
file. Sides count as different if their distance is at least LEAST of the original one.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from ...errors import UsageError
from ...search import ddmin
from .script_text import INPUT_PREFIX

LEAST = 0.25
"""The smallest distance of the sides that counts as the same difference, as a share of the original distance."""

MOST_TRIALS, MOST_ELEMENTS = 200, 64
"""The largest number of executions of both sides, and of elements that a script lists."""

DIGITS = (0, 1, 2)
"""The decimal digits to which values are rounded, the roughest first."""

SIDES = re.compile(r"^for name, side, expected in (?P<sides>\(.*\)):$", re.MULTILINE)
"""The line of a culprit's script with its two sides."""

Tensors = Mapping[str, torch.Tensor]
Side = Callable[..., Sequence[torch.Tensor]]


class Shown(Protocol):
    """Something that some values show and others do not."""

    def is_shown(self, values: Tensors) -> bool: ...


@dataclass
class SideDifference:
    """The two sides of a culprit's script, and the distance between them that counts.

    names, sides: the labels of the sides, and their functions
    needed: the smallest relative L2 distance that counts
    """

    names: tuple[str, str]
    sides: tuple[Side, Side]
    needed: float = 0.0
    trials: int = 0

    def distance(self, values: Tensors) -> float:
        """Return the relative L2 distance between the sides; 0 if they cannot be executed, infinity for NaN alone."""
        try:
            torch.manual_seed(0)
            a, b = ([result.detach() for result in side(**_copies(values))] for side in self.sides)
        except Exception:  # noqa: BLE001, shapes may not fit any more
            return 0.0
        worst = 0.0
        for x, y in zip(a, b, strict=False):
            if x.shape != y.shape or torch.equal(x.isnan(), y.isnan()) is False:
                return float("inf")
            wide = torch.complex128 if x.is_complex() else torch.float64
            apart = (x.to(wide) - y.to(wide)).nan_to_num(0.0).norm()
            size = x.to(wide).nan_to_num(0.0).norm()
            worst = max(worst, float(apart / size) if size else float(apart))
        return worst

    def is_shown(self, values: Tensors) -> bool:
        """Check whether these values still show the difference. Return False once there were enough trials."""
        self.trials += 1
        return self.trials <= MOST_TRIALS and self.distance(values) >= max(self.needed, 1e-300)


def _copies(values: Tensors) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in values.items()}


def shrunk(difference: SideDifference, values: Tensors) -> Tensors:
    """Return smaller and simpler values that still show the difference. Raises UsageError if the original do not."""
    difference.needed = LEAST * difference.distance(values)
    if not difference.is_shown(values):
        raise UsageError("the script does not show its difference here, so nothing can be shrunk")
    values = with_simpler_values(difference, with_smaller_shapes(difference, values))
    for name, value in values.items():
        if value.is_floating_point() and 1 < value.numel() <= MOST_ELEMENTS:
            values = _with_zeros(difference, values, name)
    return values


def with_smaller_shapes(difference: Shown, values: Tensors) -> Tensors:
    """Return the values with the smallest sizes of dimensions that still show the difference."""
    sizes = sorted({size for value in values.values() for size in value.shape if size > 1}, reverse=True)
    for original in sizes:
        size = original
        for smaller in _smaller_sizes(original):
            for begin in (0, size - smaller):
                if smaller >= size:
                    continue
                changed = {name: _cut(value, size, begin, smaller) for name, value in values.items()}
                if difference.is_shown(changed):
                    values, size = changed, smaller
                    break
    return values


def with_simpler_values(difference: Shown, values: Tensors) -> Tensors:
    """Return the values with zeros, ones or rounded numbers in the tensors that still show the difference then."""
    for name in values:
        for candidate in _simpler(values[name]):
            changed = {**values, name: candidate}
            if difference.is_shown(changed):
                values = changed
                break
    return values


def _smaller_sizes(size: int) -> Iterator[int]:
    """Yield the halves of a size, down to 1."""
    while size > 1:
        size //= 2
        yield size


def _cut(value: torch.Tensor, size: int, begin: int, smaller: int) -> torch.Tensor:
    """Return a tensor in which all dimensions of this size are cut."""
    for dimension, length in enumerate(value.shape):
        if length == size:
            value = value.narrow(dimension, begin, smaller)
    return value.clone()


def _simpler(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield simpler values of a tensor, the simplest first."""
    if value.numel():
        yield torch.zeros_like(value)
        yield torch.ones_like(value)
    if value.is_floating_point():
        for digits in DIGITS:
            rounded = value.double().round(decimals=digits).to(value.dtype)
            if not torch.equal(rounded, value):
                yield rounded


def _with_zeros(difference: SideDifference, values: Tensors, name: str) -> Tensors:
    """Return the values with as few elements of a tensor other than zero as show the difference."""
    flat = values[name].flatten()

    def with_elements(kept: Sequence[int]) -> Tensors:
        changed = torch.zeros_like(flat)
        changed[list(kept)] = flat[list(kept)]
        return {**values, name: changed.reshape(values[name].shape)}

    nonzero = [place for place in range(flat.numel()) if flat[place] != 0]
    if len(nonzero) < 2:
        return values
    return with_elements(ddmin(nonzero, lambda kept: difference.is_shown(with_elements(kept))))


def difference_of(script: str, path: Path) -> tuple[SideDifference, Tensors, str]:
    """Return the difference that a culprit's script shows, its values, and the text of its sides. Raises UsageError."""
    match, loads = SIDES.search(script), script.find("values = load(")
    if match is None or loads < 0:
        raise UsageError(f"{path} is no script of a culprit with values beside it")
    scope: dict[str, Any] = {"__file__": str(path), "__name__": "shrunk"}
    ends = script[: match.start()].find("wide = ")
    code = f"{script[: ends if ends > 0 else match.start()]}\nSIDES = {match['sides']}\n"
    exec(compile(code, str(path), "exec"), scope)  # noqa: S102, numdrift has written and executed this script
    (first, side_a, _), (second, side_b, _) = scope["SIDES"]
    if any(name.startswith(INPUT_PREFIX) for name in scope["values"]):
        raise UsageError("the script has recorded results of a kernel that only numdrift has, so nothing can be shrunk")
    begin, end = script.find("def side_a("), script.find("def load(")
    return SideDifference((first, second), (side_a, side_b)), scope["values"], script[begin:end].rstrip()


def written(values: Tensors) -> list[str]:
    """Return lines of Python that make the values. Raises UsageError if they have too many elements to be listed."""
    lines = []
    for name, value in values.items():
        dtype = str(value.dtype)
        if value.numel() > MOST_ELEMENTS:
            raise UsageError(f"{name} still has {value.numel()} elements, more than a script lists")
        content = [_shortest(number, value.dtype) for number in value.flatten().tolist()]
        listed = f"[{', '.join(content)}]"
        shape = "" if value.dim() == 1 else f".reshape({tuple(value.shape)})"
        lines.append(f"{name} = torch.tensor({listed}, dtype={dtype}){shape}")
    return lines


def _shortest(number: Any, dtype: torch.dtype) -> str:
    """Return the shortest decimal number that is this number in the dtype."""
    if not isinstance(number, float):
        return repr(number)
    if not math.isfinite(number):
        return f"float('{number}')"
    for digits in range(1, 18):
        text = f"{number:.{digits}g}"
        if torch.tensor(float(text), dtype=dtype).item() == number:
            return text
    return repr(number)


def text_of(difference: SideDifference, values: Tensors, sides: str, original: str) -> str:
    """Return a script of plain PyTorch that prints what both sides compute, and fails if they are equal."""
    heading = original.partition("\n")[0].strip('"')
    is_compiled = "torch.compile(side_b" in original
    settings = [
        line for line in original.splitlines() if line.startswith(("torch._inductor.config.", "import torch._"))
    ]
    imports = [line for line in settings if line.startswith("import")]
    arguments = ", ".join(f"{name}={name}" for name in values)
    lines = [
        f'"""{heading}"""',
        "",
        "import torch",
        *imports,
        "",
        *[line for line in settings if line not in imports],
        "",
        sides,
        "",
        *written(values),
        "",
        f"a = side_a({arguments})",
        f"b = {'torch.compile(side_b, fullgraph=True, dynamic=False)' if is_compiled else 'side_b'}({arguments})",
        f'print("{difference.names[0]}", a)',
        f'print("{difference.names[1]}", b)',
        'assert all(torch.equal(x, y) for x, y in zip(a, b)), "the sides differ"',
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def main(argv: Sequence[str]) -> int:
    path, target = Path(argv[0]), Path(argv[1])
    original = path.read_text(encoding="utf-8")
    try:
        difference, values, sides = difference_of(original, path)
        smaller = shrunk(difference, values)
        target.write_text(text_of(difference, smaller, sides, original), encoding="utf-8")
    except UsageError as error:
        print(error)
        return 2
    shapes = ", ".join(f"{name} {tuple(values[name].shape)} to {tuple(value.shape)}" for name, value in smaller.items())
    print(f"{shapes}; {difference.trials} trials")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
