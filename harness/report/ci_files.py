"""The result of a check in the forms of CI systems: JUnit XML, and the annotations of GitHub's workflows."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ..investigate.words.culprit_words import from_here
from ..records.results.baseline import BaselineCheck

PLACE = re.compile(r"(?P<file>.+):(?P<line>\d+)")

UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")
"""The characters that XML 1.0 cannot contain (W3C, Extensible Markup Language 1.0, section 2.2)."""


def junit_xml(check: BaselineCheck) -> str:
    """Return a JUnit report with one test case, which fails if the training does not pass.

    The elements are those that GitLab, Jenkins and GitHub's actions read: `testsuites`, `testsuite`, `testcase`, and
    `failure`, or `error` if there is no verdict.
    """
    undecided = not check.passes and check.verdict in (None, "failed")
    counts = {
        "tests": "1",
        "failures": str(int(not check.passes and not undecided)),
        "errors": str(int(undecided)),
        "skipped": "0",
        "time": f"{check.seconds:.3f}",
    }
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "numdrift", **counts})
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": "numdrift.baseline", "name": _printable(check.name), "time": counts["time"]}
    )
    if not check.passes:
        kind = "error" if undecided else "failure"
        attributes = {"message": _printable(check.text), "type": check.verdict or "undecided"}
        ElementTree.SubElement(case, kind, attributes).text = _printable(check.message)
    else:
        ElementTree.SubElement(case, "system-out").text = _printable(check.message)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def annotation_lines(check: BaselineCheck) -> list[str]:
    """Return the lines with which a workflow of GitHub annotates the lines of the causes, or the run itself.

    See "Workflow commands for GitHub Actions" in GitHub's documentation.
    """
    if check.passes:
        return [f"::notice title=numdrift::{_escaped(check.message)}"]
    message = f"title=numdrift::{_escaped(check.message)}"
    found = [match for place in check.places if (match := PLACE.fullmatch(place))]
    places = [f"file={_property(from_here(match['file']))},line={match['line']}" for match in found]
    return [f"::error {place},{message}" for place in places] or [f"::error {message}"]


def _printable(text: str) -> str:
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
