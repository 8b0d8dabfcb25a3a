from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.graphs.export.node_order import LONGEST, title


@pytest.mark.parametrize(
    ("op", "plain", "marked"),
    [
        ("mm", "mm", "⚠ mm"),
        ("add.Tensor", "add_Tensor", "⚠ add_Tensor"),
        ("", "unknown", "⚠ unknown"),
        ("cpp_fused_0", "fused_0", "⚠ fused_0"),
        ("triton_poi_fused_add_3", "fused_add_3", "⚠ fused_add_3"),
        ("cpp_fused_sum_tanh_backward_0", "sum_tanh_backward_0", "⚠ sum_tanh_backward_0"),
        ("cpp_fused_mul_sub_sum_tanh_backward_view_1", "mul_sub_sum_tanh…_1", "⚠ mul_sub_sum_tanh…_1"),
        ("native_layer_norm_backward", "native_laye…_backward", "⚠ native_la…_backward"),
        ("_scaled_dot_product_attention_math", "_scaled_dot_pro…_math", "⚠ _scaled_dot_p…_math"),
    ],
)
def test_a_title_tells_the_op_in_the_room_that_there_is(op: str, plain: str, marked: str) -> None:
    assert title(op) == plain
    assert title(op, marked=True) == marked


@given(st.text(max_size=60), st.booleans())
def test_no_title_is_empty_longer_than_netron_shows_or_has_a_dot(op: str, marked: bool) -> None:
    made = title(op, marked=marked)
    assert 0 < len(made) <= LONGEST
    assert "." not in made
