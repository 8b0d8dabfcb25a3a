"""A failure of an observation, kept out of the work that it observes until somebody asks for it."""

from __future__ import annotations


class KeptFailure:
    """`with kept:` lets no exception out; `tell` raises the first one."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self.error = self.error or error
            return True
        return False

    def tell(self) -> None:
        if self.error is not None:
            raise self.error
