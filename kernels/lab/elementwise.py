"""Which arguments the ops that work element by element take, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .calls import LabCall
from .inputs import InputPart, Source

REAL, POSITIVE, TANH, SIGMOID, UNIT = (
    InputPart.REAL,
    InputPart.POSITIVE,
    InputPart.TANH,
    InputPart.SIGMOID,
    InputPart.UNIT,
)

Extras = tuple[tuple[tuple[Any, ...], Mapping[str, Any]], ...]
"""Pairs of positional arguments and keywords."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """The parts of the tensors, which come first; then what follows them.

    `each` are pairs of further positional arguments and keywords, all of which are measured together.
    `variants` are keywords that are measured on their own. `listed` ops take lists of tensors."""

    parts: tuple[InputPart, ...]
    each: Extras = (((), {}),)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    listed: bool = False

    def calls(self, source: Source, variant: str) -> list[LabCall]:
        """One large call of odd size, one on a transposed and one on a tiny tensor; the size counts
        elements."""
        made = []
        for positional, keywords in self.each:
            large = source.samples // len(self.each) | 1
            keywords = {**keywords, **self.variants[variant]}
            if self.listed:
                lists = [[_drawn(source, part, *shape) for shape in _shapes(large)] for part in self.parts]
                made.append(LabCall((*lists, *positional), keywords))
            else:
                for shape in _shapes(large):
                    tensors = [_drawn(source, part, *shape) for part in self.parts]
                    made.append(LabCall((*tensors, *positional), keywords))
        return made


def _shapes(large: int) -> list[tuple[int, ...]]:
    return [(large,), (9, 5), (3,)]


def _drawn(source: Source, part: InputPart, *shape: int) -> torch.Tensor:
    """A tensor of the shape, a matrix as the transpose of one."""
    numbers = source.elements(*reversed(shape), part=part)
    return numbers.t() if len(shape) == 2 else numbers


_GELU = {"approximate=none": {}, "approximate=tanh": {"approximate": "tanh"}}
_VALUES: Extras = (((), {}), ((), {"value": -0.3}))
_LIST_VALUES: Extras = (((), {}), ((-0.3,), {}))

ELEMENTWISE: dict[str, Elementwise] = {
    "tanh_backward": Elementwise((REAL, TANH)),
    "sigmoid_backward": Elementwise((REAL, SIGMOID)),
    "tanh": Elementwise((REAL,)),
    "sigmoid": Elementwise((REAL,)),
    "silu": Elementwise((REAL,)),
    "silu_backward": Elementwise((REAL, REAL)),
    "gelu": Elementwise((REAL,), variants=_GELU),
    "gelu_backward": Elementwise((REAL, REAL), variants=_GELU),
    "addcmul": Elementwise((REAL, REAL, REAL), each=_VALUES),
    "addcdiv": Elementwise((REAL, REAL, REAL), each=_VALUES),
    "lerp.Tensor": Elementwise((REAL, REAL, SIGMOID)),
    "lerp.Scalar": Elementwise((REAL, REAL), each=(((0.1,), {}), ((0.7,), {}))),
    "_foreach_addcmul": Elementwise((REAL, REAL, REAL), each=_LIST_VALUES, listed=True),
    "_foreach_addcdiv": Elementwise((REAL, REAL, POSITIVE), each=_LIST_VALUES, listed=True),
    "_foreach_lerp": Elementwise((REAL, REAL), each=(((0.1,), {}), ((0.7,), {})), listed=True),
    "_foreach_mul": Elementwise((REAL, REAL), listed=True),
    "_foreach_add": Elementwise((REAL, REAL), each=(((), {}), ((), {"alpha": -0.3})), listed=True),
    "_foreach_div": Elementwise((REAL, REAL), listed=True),
    "_foreach_sqrt": Elementwise((POSITIVE,), listed=True),
}

DOMAINS: dict[str, InputPart] = dict.fromkeys(
    ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "lgamma", "digamma", "special_xlog1py"), POSITIVE
) | {
    "asin": UNIT,
    "acos": UNIT,
    "atanh": UNIT,
    "special_erfinv": UNIT,
    "erfinv": UNIT,
    "logit": SIGMOID,
    "acosh": InputPart.ABOVE_ONE,
}
"""Where functions of one number are defined; those that are not listed are taken to be defined everywhere."""
