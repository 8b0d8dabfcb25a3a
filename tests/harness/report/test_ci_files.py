"""What CI systems read of a check: XML that parses, and annotations on one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.records.results.baseline import BaselineCheck
from numdrift.harness.report.ci_files import annotation_lines, junit_xml

CHECK = BaselineCheck(
    name="train.py in cpu",
    baseline="baselines/train.zip",
    verdict="beyond-rounding",
    text="beyond-rounding: 5 times",
    causes=("now also executes mul (train.py:8)",),
    places=(),
    seconds=1.25,
    folder="runs/train",
)


@pytest.mark.parametrize(
    ("verdict", "counts", "code"),
    [
        ("identical", ("0", "0"), 0),
        ("rounding", ("0", "0"), 0),
        ("beyond-rounding", ("1", "0"), 1),
        ("different-setup", ("1", "0"), 1),
        (None, ("0", "1"), 1),
        ("failed", ("0", "1"), 3),
    ],
)
def test_a_verdict_is_a_passed_test_a_failure_or_an_error(
    verdict: str | None, counts: tuple[str, str], code: int
) -> None:
    check = replace(CHECK, verdict=verdict)

    suites = ElementTree.fromstring(junit_xml(check))

    assert (suites.attrib["failures"], suites.attrib["errors"]) == counts
    assert [len(suites.findall(f".//{kind}")) for kind in ("failure", "error")] == [int(count) for count in counts]
    assert (suites.attrib["tests"], suites.attrib["time"]) == ("1", "1.250")
    assert check.exit_code == code


@given(st.text(), st.text())
def test_any_text_is_xml(name: str, text: str) -> None:
    check = replace(CHECK, name=name, text=text, causes=(text,))

    suites = ElementTree.fromstring(junit_xml(check))

    assert suites.find(".//testcase") is not None


def test_an_annotation_is_at_the_line_of_each_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check = replace(CHECK, places=(f"{tmp_path}/a,b.py:8", "/usr/lib/x.py:3", "unknown"), text="5 % off\nas said")

    message = "title=numdrift::train.py in cpu: 5 %25 off%0Aas said%0Anow also executes mul (train.py:8)"
    assert annotation_lines(check) == [
        f"::error file=a%2Cb.py,line=8,{message}",
        f"::error file=/usr/lib/x.py,line=3,{message}",
    ]
    assert annotation_lines(replace(check, places=())) == [f"::error {message}"]
    assert annotation_lines(replace(check, verdict="rounding")) == [f"::notice {message}"]
