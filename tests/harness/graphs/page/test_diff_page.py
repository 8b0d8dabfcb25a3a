from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from numdrift.harness.graphs.culprit_marks import Mark
from numdrift.harness.graphs.diff.difference_record import NodePair
from numdrift.harness.graphs.page.diff_page import write_page
from numdrift.harness.graphs.page.page_data import Texts
from numdrift.harness.graphs.run_graphs import graphs_of
from numdrift.harness.records.tools.graph_record import Graph, Node, Value
from numdrift.harness.runs.recorded_run import load_run

from ..samples import TANH_BACKWARD_CODE, sample_compile_backward, sample_lazy_backward, write_run
from .pages import BACKWARD, CULPRIT, FOUNDING_ANSWER, founding_diff, founding_page, places

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Read(HTMLParser):
    """The elements of a page as a browser's parser would begin them, and the text inside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style"):
            self.inside.append((self._open, data))

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(next(text for tag, text in self.inside if tag == "script"))
        return found

    @property
    def policy(self) -> str:
        return next(
            str(attributes["content"])
            for tag, attributes in self.elements
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        )


def hostile_page(folder: Path) -> str:
    """The founding case, where every text that a run could bring is an attack."""
    pre, post = sample_compile_backward()
    evil = Node(
        name=HOSTILE, op=HOSTILE, module=HOSTILE, source=HOSTILE, stack=HOSTILE, phase="backward",
        inputs=("mm",), input_names=(HOSTILE,), outputs=(HOSTILE,), attributes={HOSTILE: HOSTILE}, code=HOSTILE,
    )  # fmt: skip
    values = {**pre.values, HOSTILE: Value(HOSTILE, (HOSTILE,), HOSTILE)}
    pre = replace(pre, nodes=(*pre.nodes, evil), values=values, notes=(HOSTILE,), hash=HOSTILE)
    diff = founding_diff()
    pairs = [
        *diff.pairs,
        NodePair("only-a", "backward", HOSTILE, a=places(BACKWARD, HOSTILE), module=HOSTILE),
    ]
    side = replace(diff.a, run=HOSTILE, mode=HOSTILE, graphs=(BACKWARD,), cuts={HOSTILE: 1})
    diff = replace(diff, a=side, answers=[HOSTILE, HOSTILE], pairs=pairs)
    a = write_run(folder, "compile", [pre, post])
    b = write_run(folder, "lazy", [sample_lazy_backward()])
    marks = {BACKWARD: {HOSTILE: Mark(HOSTILE, {HOSTILE: 1.0}, HOSTILE)}}
    return write_page(diff, graphs_of(load_run(a)), graphs_of(load_run(b)), marks)


def page_of(folder: Path, graph: Graph) -> dict[str, Any]:
    """The data of a page whose A is this one graph."""
    diff = founding_diff()
    diff = replace(diff, a=replace(diff.a, graphs=(graph.name,), post_graphs=()), pairs=[], casts=[])
    a = write_run(folder, "compile", [graph])
    b = write_run(folder, "lazy", [sample_lazy_backward()])
    return Read(write_page(diff, graphs_of(load_run(a)), graphs_of(load_run(b)))).data


def test_what_a_run_brings_never_becomes_an_element(tmp_path: Path) -> None:
    # given
    harmless = Read(founding_page(tmp_path / "harmless"))

    # when
    read = Read(hostile_page(tmp_path / "hostile"))

    # then
    tags = [tag for tag, _ in read.elements]
    assert tags.count("script") == [tag for tag, _ in harmless.elements].count("script") == 3
    assert "img" not in tags
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    assert HOSTILE in [node["name"] for node in read.data["graphs"]["a"][0]["nodes"]]


def test_the_policy_admits_the_pages_own_scripts_and_style_and_nothing_else(tmp_path: Path) -> None:
    # when
    read = Read(founding_page(tmp_path))

    # then
    hashed = [(tag, base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()) for tag, text in read.inside]
    for tag, of in hashed[:1] + hashed[2:]:  # the second is the data, which nothing runs
        directive = re.search(rf"{tag}-src ([^;]*);", read.policy)
        assert directive is not None
        assert f"'sha256-{of}'" in directive[1]
    assert read.policy.startswith("default-src 'none'")
    assert "unsafe" not in read.policy


def test_the_page_names_no_address_that_a_browser_would_load(tmp_path: Path) -> None:
    # when
    read = Read(founding_page(tmp_path))

    # then
    assert not [attributes for _, attributes in read.elements if {"src", "href"} & set(attributes)]
    assert "sourceMappingURL" not in "".join(text for _, text in read.inside)


def test_the_page_carries_every_graph_node_pair_and_mark(tmp_path: Path) -> None:
    # when
    page = founding_page(tmp_path)
    data = Read(page).data

    # then
    assert FOUNDING_ANSWER in page
    assert [graph["name"] for graph in data["graphs"]["a"]] == ["0-forward-pre", BACKWARD, "0-backward-post"]
    (lazy,) = data["graphs"]["b"]
    assert [node["name"] for node in lazy["nodes"]] == [node.name for node in sample_lazy_backward().nodes]
    assert len(data["pairs"]) == len(founding_diff().pairs)
    marked = {node["name"]: node["mark"] for node in data["graphs"]["a"][1]["nodes"] if "mark" in node}
    assert set(marked) == {"mul", "sub", "mul_1"}
    assert marked["mul"]["numbers"] == [list(one) for one in CULPRIT.numbers.items()]


def test_a_stack_and_a_kernels_source_stand_in_the_page_once(tmp_path: Path) -> None:
    # given
    _, post = sample_compile_backward()
    stack = post.nodes[0].stack

    # when
    data = Read(founding_page(tmp_path)).data

    # then
    assert sum(stack in text for text in data["texts"]) == 1
    assert sum(TANH_BACKWARD_CODE in text for text in data["texts"]) == 1
    kernel = data["graphs"]["a"][2]["nodes"][3]
    assert data["texts"][kernel["code"]] == TANH_BACKWARD_CODE
    assert "".join(data["texts"][number] for number in data["graphs"]["a"][2]["code"]) == post.code


def test_pieces_of_a_text_join_to_it_again() -> None:
    # given
    texts = Texts()
    whole = "head\nab\nbetween ab and abc.*\n"

    # when
    pieces = texts.pieces(whole, ["ab", "abc.*", ""])

    # then
    assert "".join(texts.listed()[number] for number in pieces) == whole
    assert texts.number("abc.*") in pieces


def test_numbers_that_json_or_javascript_lack_are_written_as_text(tmp_path: Path) -> None:
    # given
    odd = {"value": -math.inf, "other": math.nan, "end": 2**63 - 1, "dim": [1, 2.5, True]}
    node = Node(name="fill", op="masked_fill", phase="backward", outputs=("fill",), attributes=odd)
    graph = Graph("0-backward-pre", "compile", "pre", "backward", 0, (node,))

    # when
    data = page_of(tmp_path, graph)

    # then
    (read,) = data["graphs"]["a"][0]["nodes"]
    assert read["attributes"] == {
        "value": "-inf",
        "other": "nan",
        "end": str(2**63 - 1),
        "dim": [1, 2.5, True],
    }


def test_text_that_is_no_unicode_still_makes_a_page_that_can_be_written(tmp_path: Path) -> None:
    # given
    diff = replace(founding_diff(), answers=["a lone surrogate \ud800"], pairs=[], casts=[])
    diff = replace(diff, a=replace(diff.a, graphs=(BACKWARD,), post_graphs=()))
    a = write_run(tmp_path, "compile", [sample_compile_backward()[0]])
    b = write_run(tmp_path, "lazy", [sample_lazy_backward()])

    # when
    page = write_page(diff, graphs_of(load_run(a)), graphs_of(load_run(b)))

    # then
    assert "a lone surrogate ?" in page.encode("utf-8").decode("utf-8")


def test_the_same_difference_makes_the_same_page(tmp_path: Path) -> None:
    assert founding_page(tmp_path / "one") == founding_page(tmp_path / "two")


def test_tables_show_differing_counts_first_and_equal_differences_in_one_row(tmp_path: Path) -> None:
    # when
    page = founding_page(tmp_path)

    # then
    body = page[: page.index('id="data"')]
    assert body.index("aten.tanh_backward</td>") < body.index("<td>aten.mm</td>")
    rows = [re.sub(r"\s*<[^>]*>\s*", "|", row) for row in re.findall(r"<tr>.*?</tr>", body, re.DOTALL)]
    assert any("|replaced|" in row and "|permute|" in row and "|2|" in row for row in rows)
    assert any("|mul, sub, mul|" in row and "|tanh_backward|" in row for row in rows)
    assert any("|mark_step at train.py:33|" in row for row in rows)
