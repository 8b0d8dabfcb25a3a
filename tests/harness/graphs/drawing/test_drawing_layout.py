from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import NotAvailable
from numdrift.harness.graphs.drawing.drawing_layout import lay_out

SIZES = st.tuples(st.floats(1, 200), st.floats(1, 80))


@st.composite
def boxes_and_lines(
    draw: st.DrawFn,
) -> tuple[dict[str, tuple[float, float]], list[tuple[str, str]]]:
    boxes = dict(enumerate(draw(st.lists(SIZES, min_size=2, max_size=12))))
    pairs = st.tuples(st.sampled_from(sorted(boxes)), st.sampled_from(sorted(boxes)))
    lines = draw(st.lists(pairs.filter(lambda pair: pair[0] < pair[1]), max_size=20))
    return {f"box {name}": size for name, size in boxes.items()}, [(f"box {a}", f"box {b}") for a, b in lines]


@settings(max_examples=25, deadline=None)
@given(boxes_and_lines())
def test_boxes_lie_apart_inside_of_the_picture_and_lines_point_down(
    drawn: tuple[dict[str, tuple[float, float]], list[tuple[str, str]]],
) -> None:
    boxes, lines = drawn
    layout = lay_out(boxes, lines)
    corners = {
        name: (x - boxes[name][0] / 2, y - boxes[name][1] / 2, x + boxes[name][0] / 2, y + boxes[name][1] / 2)
        for name, (x, y) in layout.centres.items()
    }
    for name, (left, top, right, bottom) in corners.items():
        assert left >= -1e-6 and top >= -1e-6 and right <= layout.width + 1e-6 and bottom <= layout.height + 1e-6
        for other, (left_2, top_2, right_2, bottom_2) in corners.items():
            assert name == other or right <= left_2 or right_2 <= left or bottom <= top_2 or bottom_2 <= top
    assert len(layout.lines) == len(lines)
    for (a, b), points in zip(lines, layout.lines, strict=True):
        assert layout.centres[a][1] < layout.centres[b][1]
        assert len(points) >= 3


def test_names_that_javascript_knows_are_boxes_like_others() -> None:
    names = ["__proto__", "constructor", 'a"b\\', ""]
    layout = lay_out(dict.fromkeys(names, (10, 10)), [(names[0], names[1]), (names[1], names[1])])
    assert list(layout.centres) == names


def test_nothing_has_a_layout() -> None:
    assert lay_out({}, []).centres == {}


def test_a_missing_engine_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py_mini_racer", None)
    with pytest.raises(NotAvailable, match="pip install mini-racer"):
        lay_out({"a": (1, 1)}, [])
