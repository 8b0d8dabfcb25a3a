"""Calls that a native fallback of the dispatcher does not see, or that depend on the dispatch modes of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ..dispatching import InterceptedOps
from ..patches import Patches
from ..presence import private
from .compile_work import around_compile_calls


def before_dispatch_changes(owner: str, changes: Callable[[], None]) -> Patches:
    """Call `changes` before each entry into a dispatch mode, call of a higher-order op and call of `torch.compile`.

    numdrift's own dispatch modes do not count. A higher-order op is dispatched in Python, and fails if a key is
    included for which only C++ has a kernel. Raises NotAvailable and AlreadyPatched.
    """

    def entered(original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(mode: TorchDispatchMode) -> Any:
            if not isinstance(mode, InterceptedOps):
                changes()
            return original(mode)

        return enter

    def after_changes(original: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any, **kwargs: Any) -> Any:
            changes()
            return original(*args, **kwargs)

        return changed

    def compiles(compile_: Callable[[], Any]) -> Any:
        changes()
        return compile_()

    with Patches(owner) as patches:
        patches.wrap(TorchDispatchMode, "__enter__", entered)
        patches.wrap(private("torch._ops", "HigherOrderOperator"), "__call__", after_changes)
        patches.also(around_compile_calls(owner, compiles))
    return patches
