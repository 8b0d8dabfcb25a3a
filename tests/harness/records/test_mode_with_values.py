"""What stands for a mode whose single ops have no values, when they are executed one by one."""

from __future__ import annotations

import pytest

from numdrift.harness.records.modes.mode_spec import parse_mode


@pytest.mark.parametrize(
    ("mode", "standing"),
    [
        ("m=lazy,mark_step=phase,kernel.mul=aten", "m=cpu,kernel.mul=aten"),
        ("m=lazy,execute=op", "m=cpu"),
        ("m=compile,backend=eager", "m=compile,backend=eager"),
    ],
)
def test_lazy_ops_are_executed_on_the_cpu_in_a_mode_that_can_be_typed(mode: str, standing: str) -> None:
    found = parse_mode(mode).with_values()
    assert found == parse_mode(standing) == parse_mode(str(found))
