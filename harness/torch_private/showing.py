"""An op that shows values of a compiled graph to Python, and returns nothing: no graph breaks there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .presence import private

_libraries: list[Any] = []
"""An op lives as long as the library that defines it."""


def define_show_op(seen: Callable[[Sequence[torch.Tensor], str], None]) -> Any:
    """Define `numdrift::show(Tensor[] values, str text) -> ()`, which calls `seen`. To be called once in a
    process.

    The compiler lays the values out as it likes, and keeps the op although nothing uses a result of it.
    """
    library: Any = torch.library.Library("numdrift", "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    library.define("show(Tensor[] values, str text) -> ()", tags=tags)
    library.impl("show", lambda values, text: seen(values, text), "CompositeExplicitAutograd")
    torch.library.register_fake("numdrift::show", lambda values, text: None, lib=library)
    operation = torch.ops.numdrift.show.default
    private("torch.fx.node", "has_side_effect")(operation)
    _libraries.append(library)
    return operation
