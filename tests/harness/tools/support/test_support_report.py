from __future__ import annotations

from pathlib import Path

import pytest

from numdrift.harness.errors import JournalError
from numdrift.harness.records.tools.backend_work import OperatorCall
from numdrift.harness.records.tools.support_record import SUPPORT, SupportRecord, SupportWriter, read_support
from numdrift.harness.tools.support.support_report import SupportReport, report_json, report_of, write_page

ADD = OperatorCall("aten::add", "float32[4], float32[]", "model.py:12", ("broadcast", "add"))
REAL = OperatorCall("aten::mul", "float32[], float32[]", "model.py:12", ("multiply",))
COMPLEX = OperatorCall(
    "aten::mul",
    "float32[4], complex64[4]",
    "model.py:13",
    ("convert", "complex multiply"),
    "compiler",
    "complex",
)
SCRIPT = {"path": "<b>.py", "arguments": [], "status": "complete", "message": "", "steps": 0, "run": "runs/b"}


def written(folder: Path, *calls: OperatorCall, ends: bool = True) -> SupportRecord:
    writer = SupportWriter(folder)
    writer.begin("toy backend", "toy", {"torch": "2.13.0"}, dry=False)
    for call in calls:
        writer.called(call)
    writer.count(0)
    if ends:
        writer.end()
    record = read_support(folder)
    assert record is not None
    return record


@pytest.fixture
def report(tmp_path: Path) -> SupportReport:
    """The founding text's case: two additions and a product, and a product of complex numbers that cannot be done."""
    return report_of(written(tmp_path, ADD, ADD, REAL, COMPLEX))


def test_an_operator_is_in_both_lists_by_its_configuration(report: SupportReport) -> None:
    made = report_json(report, "lazy", SCRIPT, "0.1.0", 2)
    assert made["support_percentage"] == "60.00%"
    assert made["supported_operators"] == {"aten": {"aten::add": 2, "aten::mul": 1}}
    assert made["unsupported_operators"] == {
        "aten": [
            {
                "kind": "aten::mul",
                "failureAt": "compiler",
                "call": "model.py:13",
                "configuration": "float32[4], complex64[4]",
                "reason": "complex",
                "count": 1,
            }
        ]
    }
    assert made["numdrift_version"] == "0.1.0" and made["torch_version"] == "2.13.0"


def test_at_verbosity_1_the_instructions_are_listed_with_their_operators(report: SupportReport) -> None:
    made = report_json(report, "lazy", SCRIPT, "0.1.0", 1)
    assert made["supported_operators"]["toy"] == ["broadcast", "add", "multiply"]
    assert made["unsupported_operators"]["toy"] == [
        {"instruction": "convert", "aten_op": "aten::mul", "count": 1},
        {"instruction": "complex multiply", "aten_op": "aten::mul", "count": 1},
    ]
    assert [row["count"] for row in made["instructions"]] == [2, 2, 1, 1, 1]


def test_what_is_almost_all_supported_is_not_100_percent(tmp_path: Path) -> None:
    many = [OperatorCall("aten::add", f"float32[{size}]", "", (f"add {size}",)) for size in range(30_000)]
    assert report_of(written(tmp_path, *many, COMPLEX)).percentage == "99.99%"


def test_an_instruction_that_is_unsupported_once_is_unsupported(tmp_path: Path) -> None:
    other = OperatorCall("aten::mul", "float32[4]", "model.py:14", COMPLEX.instructions)
    assert report_of(written(tmp_path, other, COMPLEX)).percentage == "0.00%"


def test_of_an_operator_that_is_done_in_part_only_the_rest_is_unsupported(tmp_path: Path) -> None:
    partly = OperatorCall("aten::f", "float32[4]", "", ("scale", "scatter"), "compiler", "why", ("scatter",))
    report = report_of(written(tmp_path, partly))
    assert report.percentage == "50.00%"
    assert [(row.text, row.supported) for row in report.instructions] == [("scale", True), ("scatter", False)]


def test_what_a_killed_process_has_written_is_read(tmp_path: Path) -> None:
    written(tmp_path, ADD, ends=False)
    with (tmp_path / SUPPORT).open("a") as file:
        file.write('{"event":"operator","numb')
    record = read_support(tmp_path)
    assert record is not None and not record.whole
    assert [(one.call, one.count) for one in record.calls] == [(ADD, 1)]


def test_a_damaged_record_is_an_error_that_names_it(tmp_path: Path) -> None:
    written(tmp_path, ADD)
    (tmp_path / SUPPORT).write_text('{"event":"operator"}\n')
    with pytest.raises(JournalError, match=SUPPORT):
        read_support(tmp_path)


def test_the_page_escapes_what_comes_from_the_run(report: SupportReport) -> None:
    page = write_page(report, "lazy", SCRIPT, "0.1.0")
    assert "&lt;b&gt;.py" in page and "<b>.py" not in page
    assert "60.00%" in page and "complex multiply" in page
    assert "<script" not in page
