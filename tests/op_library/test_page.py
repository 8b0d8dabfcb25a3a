"""The page of the ops that PyTorch's own samples call."""

from __future__ import annotations

from pathlib import Path

from numdrift.harness.records.results.op_table import FAILED, CheckedOp, OpTable

from .page import in_markdown, page


def test_the_page_counts_verdicts_and_shows_the_smallest_script(tmp_path: Path) -> None:
    # given the results of four ops
    script = tmp_path / "softsign/evidence/compile-localized-cpu-000000/shrunk-1.py"
    script.parent.mkdir(parents=True)
    script.write_text("assert 1 == 2\n")
    rows = [
        CheckedOp("abs", "compile", "identical", "the same"),
        CheckedOp("softsign", "compile", "beyond-rounding", "less | exactly", 30.0, "aten.div", 60.0, "/gone/softsign"),
        CheckedOp("item", "compile", FAILED, "returns no tensor"),
        CheckedOp("chalf", "compile", FAILED, f"{tmp_path}/chalf/values: output is complex"),
        CheckedOp("equal", "compile", FAILED, "returns no tensor"),
    ]

    text = page(OpTable(".", "cpu", rows), tmp_path, 2, "measured somewhere")

    assert "| `identical` | 1 |" in text
    assert "took 1 minutes" in text
    assert "### softsign\n\n`beyond-rounding`: less &#124; exactly\n\n```python\nassert 1 == 2\n```" in text
    assert "| returns no tensor | `equal`, `item` |" in text
    assert "| chalf/values: output is complex | `chalf` |" in text
    assert "### abs" not in text


def test_no_text_becomes_markup() -> None:
    assert in_markdown("<b>\n|x|") == "&#60;b&#62; &#124;x&#124;"
