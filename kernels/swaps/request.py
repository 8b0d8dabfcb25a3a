"""What a mode asks for: `kernel.<op>[@<module>][:<occurrence>]=<kernel>` and `decompose.<op>=off`.

    kernel.tanh_backward=fma            every tanh_backward
    kernel.tanh_backward@net.1=fma      those of the module net.1 and of what is inside it
    kernel.tanh_backward@net.1:0=fma    the first one of net.1 in each step
    kernel.tanh_backward@:2=fma         the third one of each step
    kernel.sum.dim_IntList=kahan        one overload of an op
    kernel.tanh_backward=mine.c         a kernel of one's own

Parsing needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from numdrift.harness.errors import UsageError

KEY = re.compile(r"(?:aten(?:\.|::))?(?P<op>\w+(?:\.\w+)?)(?:@(?P<module>[\w.]*)(?::(?P<occurrence>\d+))?)?")
OWN = (".c", ".py")
"""How the path of a user's own kernel ends."""


@dataclass(frozen=True, slots=True)
class SwapRequest:
    """One swap as it was asked for. `key` is its text, `module` and `occurrence` are its scope, if any."""

    key: str
    op: str
    kernel: str
    module: str | None = None
    occurrence: int | None = None

    def __str__(self) -> str:
        return f"{self.key}={'off' if self.key.startswith('decompose.') else self.kernel}"

    @property
    def is_own(self) -> bool:
        """Whether `kernel` is the path of a user's kernel."""
        return self.kernel.endswith(OWN)

    @property
    def from_decomposition(self) -> bool:
        """Whether this is `decompose.<op>=off`: the op's own kernel in place of its decomposition."""
        return self.key.startswith("decompose.")


def swap_requests(kernel: Mapping[str, str], decompose: Mapping[str, str]) -> tuple[SwapRequest, ...]:
    """Read the `kernel.` and `decompose.` keys of a mode. Raises UsageError for a key that is none."""
    kernels = [_request("kernel", key, name) for key, name in kernel.items()]
    return (*kernels, *(_request("decompose", key, "aten") for key in decompose))


def _request(group: str, key: str, kernel: str) -> SwapRequest:
    match = KEY.fullmatch(key)
    if match is None or (group == "decompose" and "@" in key):
        form = "OP, OP@MODULE, OP@MODULE:N or OP@:N" if group == "kernel" else "OP"
        raise UsageError(f"{group}.{key} is no swap; after {group}. comes {form}")
    module, occurrence = match["module"], match["occurrence"]
    if module == "" and occurrence is None:
        raise UsageError(f"{group}.{key} names no module after @, as in {group}.{match['op']}@net.1={kernel}")
    return SwapRequest(
        key=f"{group}.{key}",
        op=match["op"],
        kernel=kernel,
        module=module or None,
        occurrence=None if occurrence is None else int(occurrence),
    )
