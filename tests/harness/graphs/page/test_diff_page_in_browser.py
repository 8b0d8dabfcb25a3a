"""The page as a reader meets it: in Chromium, from disk, at 1440 by 900."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .browsing import in_view, names_of, node, overlaps, show, titles, wait
from .pages import FOUNDING_ANSWER, chain_page, cut_page, founding_page
from .test_diff_page import hostile_page

SHAPE = "8\N{MULTIPLICATION SIGN}16 float32"
KERNEL = "cpp_fused_mul_sub_sum_tanh_backward_view_1"

pytestmark = pytest.mark.slow


def test_both_graphs_stand_side_by_side_under_the_answer(page: Page, tmp_path: Path) -> None:
    # when
    show(page, tmp_path, founding_page(tmp_path))

    # then
    page.screenshot(path=tmp_path / "founding.png")
    assert page.locator("h1").text_content() == FOUNDING_ANSWER
    assert page.locator("#phase").input_value() == "backward"
    assert sorted(titles(page, "a")) == sorted(
        ["mm", "mm", "mm", "mul", "mul", "sub", "permute", "permute", "sum", "sum", "view", "view"]
    )
    assert titles(page, "b").count("tanh_backward") == 1
    assert SHAPE in node(page, "b", "tanh_backward").locator(".line").all_text_contents()
    assert all(in_view(page, node(page, "a", name), "a") for name in ("mul", "sub", "mul_1"))
    assert page.locator("#pane-b .edge.data").count() == 7


def test_boxes_do_not_overlap(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))

    # then
    assert page.locator("#pane-a .box, #pane-a .pill rect").count() > 12
    assert overlaps(page, "a") == []


def test_a_click_on_one_node_of_a_group_highlights_the_whole_group_and_its_counterpart(
    page: Page, tmp_path: Path
) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))

    # when
    node(page, "a", "sub").click()

    # then
    page.screenshot(path=tmp_path / "selected.png")
    assert names_of(page, "a", ".selected") == ["sub"]
    assert names_of(page, "a", ".related") == ["mul", "mul_1"]
    assert names_of(page, "b", ".related") == ["tanh_backward"]
    assert in_view(page, node(page, "b", "tanh_backward"), "b")
    details = page.locator("#details")
    for said in (
        "aten.sub.Tensor", "net.1", "train.py:19", "aten.tanh_backward", "the same work in different pieces",
        "paired by module, source, sequence", SHAPE, 'File "train.py", line 31', "max_ulp", "724",
    ):  # fmt: skip
        expect(details).to_contain_text(said)

    # and when
    page.keyboard.press("Escape")

    # then
    expect(details).to_be_hidden()
    assert page.locator(".related, .selected").count() == 0


def test_a_click_on_a_fused_kernel_shows_its_source_and_lights_what_it_covers(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))
    page.select_option("#pane-a .stage", "post")
    wait(page)
    assert KERNEL in titles(page, "a")

    # when
    node(page, "a", KERNEL).click()

    # then
    page.screenshot(path=tmp_path / "kernel.png")
    expect(page.locator("#details pre").first).to_contain_text("auto tmp4 = tmp0 * tmp3;")
    assert names_of(page, "b", ".related") == ["sum_1", "tanh_backward", "view_1"]

    # and when
    page.locator("#details .chip", has_text="mul_1").first.click()
    wait(page)

    # then
    assert page.locator("#pane-a .stage").input_value() == "pre"
    assert names_of(page, "a", ".selected") == ["mul_1"]

    # and when
    page.select_option("#pane-a .stage", "post")
    wait(page)

    # then
    assert names_of(page, "a", ".related") == [KERNEL]


def test_selecting_in_lazys_graph_lights_the_kernel_that_holds_the_counterpart(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))
    page.select_option("#pane-a .stage", "post")
    wait(page)

    # when
    node(page, "b", "tanh_backward").click()

    # then
    assert names_of(page, "a", ".related") == [KERNEL]


def test_the_culprit_has_a_ring_and_its_name_in_both_panes_and_in_its_kernel(page: Page, tmp_path: Path) -> None:
    # when
    show(page, tmp_path, founding_page(tmp_path))

    # then
    assert names_of(page, "a", ".marked") == ["mul", "mul_1", "sub"]
    assert names_of(page, "b", ".marked") == ["tanh_backward"]
    expect(node(page, "b", "tanh_backward").locator(".ring")).to_have_css("stroke", "rgb(196, 0, 26)")
    assert node(page, "b", "tanh_backward").locator(".culprit").text_content() == "⚠ tanh_backward"
    assert page.locator("#differences .chip").first.text_content() == "⚠ mul, sub, mul ↔ tanh_backward"
    page.select_option("#pane-a .stage", "post")
    wait(page)
    assert names_of(page, "a", ".marked") == [KERNEL]


def test_a_module_has_the_colour_of_its_drift(page: Page, tmp_path: Path) -> None:
    # when
    show(page, tmp_path, founding_page(tmp_path, {"net.0": (1.53, 2), "net.2": (910.0, 4), "toString": (1.0, 1)}))

    # then
    drawn = node(page, "b", "mm_2")
    assert drawn.locator(".drift-2").count() == 1 and "net.0 drifts by at most 1.53" in (drawn.text_content() or "")
    assert node(page, "b", "mm").locator(".drift-4").count() == 1
    assert node(page, "b", "tanh_backward").locator(".drift").count() == 0
    expect(page.locator(".legend")).to_contain_text("beyond rounding")


def test_a_large_graph_shows_a_neighbourhood_of_the_difference_first(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, chain_page(tmp_path, layers=75, whole=40))

    # then
    page.screenshot(path=tmp_path / "neighbourhood.png")
    first = page.locator("#pane-a .node").count()
    assert 5 < first < 60
    assert in_view(page, node(page, "a", "erf_40"), "a")
    assert in_view(page, node(page, "b", "gelu_40"), "b")
    expect(page.locator("#pane-a .status")).to_have_text(f"{first} of 300 nodes, 5 hops around erf_40")

    # and when
    page.click("#pane-a .more")
    wait(page)

    # then
    assert first < page.locator("#pane-a .node").count() < 300

    # and when
    page.click("#pane-a .whole")
    wait(page)

    # then
    page.screenshot(path=tmp_path / "whole.png")
    assert page.locator("#pane-a .node").count() == 300
    assert page.locator("#pane-a .edge.data").count() == 75 * 6 - 2
    assert page.locator("#pane-b .node").count() < 60
    assert overlaps(page, "a") == []


def test_the_page_itself_lays_out_no_large_graph(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, chain_page(tmp_path, layers=75, whole=40))
    page.evaluate("() => { window.layOut = () => { throw new Error('laid out in the page'); }; }")

    # when
    page.click("#pane-a .whole")
    wait(page)

    # then
    assert page.locator("#pane-a .node").count() == 300


def test_a_large_graph_is_laid_out_without_a_worker_too(page: Page, tmp_path: Path) -> None:
    # given
    page.add_init_script("delete window.Worker")
    show(page, tmp_path, chain_page(tmp_path, layers=75, whole=40))

    # when
    page.click("#pane-a .whole")
    wait(page)

    # then
    assert page.locator("#pane-a .node").count() == 300


def test_a_node_outside_of_the_neighbourhood_is_drawn_when_its_counterpart_is_selected(
    page: Page, tmp_path: Path
) -> None:
    # given
    show(page, tmp_path, chain_page(tmp_path, layers=75, whole=40))
    page.click("#pane-a .whole")
    wait(page)
    assert node(page, "b", "mm_3").count() == 0

    # when
    page.fill("#search", "mm_3")
    page.press("#search", "Enter")
    wait(page)

    # then
    expect(page.locator("#found")).to_have_text("11 in A, 1 in B, 10 hidden")
    assert in_view(page, node(page, "a", "mm_3"), "a")
    assert in_view(page, node(page, "b", "mm_3"), "b")


def test_what_is_not_drawn_is_a_pill_that_draws_it(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))
    page.check("#only")
    wait(page)
    assert names_of(page, "b", "") == ["t", "t_1", "tanh_backward"]

    # when
    page.locator("#pane-b .pill.hidden", has_text="… sum").click()
    wait(page)

    # then
    assert names_of(page, "b", "") == ["sum_1", "t", "t_1", "tanh_backward"]


def test_several_graphs_of_a_phase_stand_in_frames_that_say_why_they_end(page: Page, tmp_path: Path) -> None:
    # when
    show(page, tmp_path, cut_page(tmp_path))

    # then
    page.screenshot(path=tmp_path / "cut.png")
    assert page.locator("#pane-b .frame-title").all_text_contents() == [
        "0-backward-pre  ends at mark_step train.py:33",
        "0-backward-2-pre",
    ]
    assert node(page, "a", "permute_2").locator(".word").text_content() == "only A"
    page.locator("main [data-graph]").nth(1).click()
    expect(page.locator("#details")).to_contain_text("mark_step")


def test_the_page_is_used_with_the_keyboard_alone(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))

    # when
    page.locator("#pane-a .fit").focus()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.dataset.name") == "tanh_backward":
            break
    page.keyboard.press("Enter")

    # then
    assert names_of(page, "b", ".selected") == ["tanh_backward"]
    assert names_of(page, "a", ".related") == ["mul", "mul_1", "sub"]


def test_dragging_pans_the_wheel_zooms_and_fit_brings_all_back(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))
    shown = node(page, "b", "sum").locator(".box")
    before = shown.bounding_box()
    pane = page.locator("#pane-b .canvas").bounding_box()
    assert before is not None
    assert pane is not None

    # when
    page.mouse.move(pane["x"] + 20, pane["y"] + 20)
    page.mouse.down()
    page.mouse.move(pane["x"] + 60, pane["y"] + 50, steps=4)
    page.mouse.up()
    panned = shown.bounding_box()
    page.mouse.wheel(0, -300)
    zoomed = shown.bounding_box()
    page.click("#pane-b .fit")
    fitted = shown.bounding_box()

    # then
    assert panned is not None
    assert zoomed is not None
    assert (panned["x"] - before["x"], panned["y"] - before["y"]) == pytest.approx((40, 30), abs=1)
    assert zoomed["width"] > 1.3 * before["width"]
    assert fitted == pytest.approx(before, abs=1)


def test_a_hostile_run_runs_nothing(page: Page, tmp_path: Path) -> None:
    # when
    show(page, tmp_path, hostile_page(tmp_path))
    page.locator("#pane-a .node.marked").click()

    # then
    expect(page.locator("#details")).to_contain_text("<img src=x onerror=alert(2)>")
    assert page.locator("img").count() == 0
