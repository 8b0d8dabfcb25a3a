"""What keeps a failure of the recorder's own out of the training."""

from __future__ import annotations

from collections.abc import Callable


class Guard:
    """A context that ends with any exception: `failed` is told what was being done, the script goes on."""

    __slots__ = ("_doing", "_failed")

    def __init__(self, failed: Callable[[str, Exception], None], doing: str) -> None:
        self._failed = failed
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self._failed(self._doing, error)
            return True
        return False
