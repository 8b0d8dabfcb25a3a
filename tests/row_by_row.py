"""Tables of quick rows as one test: every row is tried, and those that fail are told together.

Thousands of tests of a millisecond each cost more in being collected, sent to a worker and reported than in being run:

    @table(("op", "dtype"), [("add", "float32"), ("mul", "float64")])
    def test_it(op: str, dtype: str, tmp_path: Path) -> None: ...

is one test, with the fixtures that it asks for, which are those of all rows. Tables above each other are multiplied.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def table(
    names: str | tuple[str, ...], rows: Iterable[Any], *, ids: Callable[[Any], object] = repr
) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, in one test; `ids` makes a value readable."""
    wanted = (names,) if isinstance(names, str) else names
    listed = [row.values if hasattr(row, "marks") else (row,) if isinstance(names, str) else row for row in rows]
    if not listed:
        raise ValueError(f"the table of {wanted} has no row")

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def every_row(**fixtures: Any) -> None:
            failed: list[tuple[str, BaseException]] = []
            for row in listed:
                values = dict(zip(wanted, row, strict=True))
                try:
                    test(**values, **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001, it is told below
                    failed.append((", ".join(f"{name}={ids(value)}" for name, value in values.items()), error))
            if failed:
                told = "\n".join(f"{row}: {type(error).__name__}: {error}" for row, error in failed)
                raise AssertionError(f"{len(failed)} of {len(listed)} rows:\n{told}") from failed[0][1]

        signature = inspect.signature(test)
        others = [one for name, one in signature.parameters.items() if name not in wanted]
        every_row.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        del every_row.__wrapped__
        return every_row

    return decorate
