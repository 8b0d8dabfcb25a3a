from __future__ import annotations

from numdrift.harness.backends.xla.adapter import hlo_instructions

WITH_SHAPES = """HloModule IrToHlo.7, entry_computation_layout={(f32[4]{0})->(f32[4]{0})}

ENTRY %IrToHlo.7 (p0.1: f32[4]) -> (f32[4]) {
  %p0.1 = f32[4]{0} parameter(0), sharding={replicated}
  %constant.2 = f32[] constant(10)
  %broadcast.3 = f32[4]{0} broadcast(f32[] %constant.2), dimensions={}
  %add.5 = f32[4]{0} add(f32[4]{0} %p0.1, f32[4]{0} %broadcast.3), metadata={op_type="aten__add"}
  ROOT %tuple.6 = (f32[4]{0}) tuple(f32[4]{0} %add.5)
}
"""
WITHOUT_SHAPES = """ENTRY IrToHlo.7 {
  p0.1 = f32[4]{0} parameter(0)
  constant.2 = f32[] constant(10)
  broadcast.3 = f32[4]{0} broadcast(constant.2), dimensions={}
  ROOT add.5 = f32[4]{0} add(p0.1, broadcast.3)
}
"""


def test_instructions_read_as_in_the_founding_report() -> None:
    wanted = ["f32[4]{0} broadcast(f32[]), dimensions={}", "f32[4]{0} add(f32[4]{0}, f32[4]{0})"]
    assert hlo_instructions(WITH_SHAPES) == wanted
    assert hlo_instructions(WITHOUT_SHAPES) == wanted
    # and what is called goes by its name, without the number that it has in this graph
    reduced = "  %reduce.9 = f32[] reduce(f32[4]{0} %add.5, f32[] %c.1), dimensions={0}, to_apply=%AddComputation.30"
    assert hlo_instructions(reduced) == ["f32[] reduce(f32[4]{0}, f32[]), dimensions={0}, to_apply=AddComputation"]
