from __future__ import annotations

import gc

import pytest

from numdrift.harness.tape.uncollected import uncollected


def test_nothing_is_collected_until_the_context_ends() -> None:
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_lets_the_collector_go_on() -> None:
    with pytest.raises(ValueError, match="damaged"), uncollected():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_a_collector_that_the_script_has_turned_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
