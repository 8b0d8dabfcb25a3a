"""What the parts of a model are that are put on a backend one by one."""

from __future__ import annotations

from typing import NamedTuple

Part = tuple[int, int]
"""An operator of a module with its gradient: the number of the captured graph, and that of the call in it."""


class PartCall(NamedTuple):
    """What a part is: the operator as it was written, its line, and the path of the module that calls it (the
    outermost is "")."""

    operator: str
    line: str
    module: str
