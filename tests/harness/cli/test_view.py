"""What `numdrift view` serves: to this machine, by its own address, and nothing outside of its folder."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

import numdrift
from numdrift.harness.cli.program import program
from numdrift.harness.cli.view import served
from numdrift.harness.errors import UsageError
from numdrift.harness.records.results.findings import Findings, PairFindings, RunEnding
from numdrift.harness.report.listing import listed


def record(folder: Path, mode: str, name: str, rate: float) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    with numdrift.record(mode, folder, name):
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewed") / "runs"
    record(folder, "cpu", "one", 0.1)
    record(folder, "faster=cpu", "one", 0.2)
    record(folder, "cpu", "two", 0.1)
    pair = PairFindings("cpu", "faster", "different-setup", ("different-setup: <b>lr</b> 0.1 against 0.2",))
    runs = {name: RunEnding("complete", 3, 0.1, "", name, name) for name in ("cpu", "faster")}
    Findings("train.py", "cpu", runs, [pair]).write(folder / "one")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    server = served(folder, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def get(address: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_investigations_are_listed_with_their_answers_and_runs(folder: Path, address: str) -> None:
    code, page = get(address)
    assert code == 200 and "&lt;b&gt;lr&lt;/b&gt; 0.1 against 0.2" in page and "<b>lr" not in page
    assert "not investigated: numdrift investigate" in page and 'value="two/cpu"' in page
    rows = {one.name: one for one in listed(folder)}
    losses = [numdrift.load_run(folder / "one" / mode).losses().tolist() for mode in ("cpu", "faster")]
    apart = max(abs(b - a) / abs(a) for a, b in zip(*losses, strict=True))
    assert [run.drift for run in rows["one"].runs] == [None, pytest.approx(apart)]
    assert get(f"{address}rows")[1] in page


def test_reports_and_comparisons_are_made_when_they_are_asked_for(address: str) -> None:
    code, page = get(f"{address}report?investigation=one")
    assert code == 200 and "did not train the same thing" in page
    code, page = get(f"{address}compare?a=one/cpu&b=two/cpu")
    assert code == 200 and "bit for bit" in page
    assert get(f"{address}graphs?a=one/cpu&b=two/cpu")[0] in (400, 404)


@pytest.mark.parametrize(
    "path",
    [
        "report?investigation=../one",
        "report?investigation=nothing",
        "compare?a=one/cpu&b=../../etc",
        "compare",
        "x",
        "../x",
    ],
)
def test_what_is_not_in_the_folder_is_not_there(address: str, path: str) -> None:
    code, said = get(f"{address}{path}")
    assert code in (400, 404) and len(said.splitlines()) == 1 and "Traceback" not in said


def test_another_name_of_this_machine_is_refused(address: str) -> None:
    assert get(address, Host="evil.example:80")[0] == 403
    assert get(f"{address}rows", Host="evil.example")[0] == 403


def test_wrong_usage_is_one_line(folder: Path, address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        CliRunner().invoke(program, ["view", str(tmp_path / "none")], standalone_mode=False, catch_exceptions=False)
    port = address.rpartition(":")[2].rstrip("/")
    with pytest.raises(UsageError, match=f"port {port} cannot be used: Address already in use"):
        CliRunner().invoke(
            program, ["view", str(folder), "--port", port], standalone_mode=False, catch_exceptions=False
        )


@pytest.mark.slow
def test_a_reader_filters_compares_and_sees_what_goes_on(browser: Browser, folder: Path, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    page.get_by_label("show only entries with these words").fill("two")
    expect(page.locator(".investigation:visible")).to_have_count(1)
    page.get_by_label("show only entries with these words").fill("")
    # when a pair is chosen while another run appears, then it stays chosen
    page.get_by_role("button", name="compare A with B").click()
    expect(page.locator("#said")).to_contain_text("choose two runs")
    page.get_by_label("A is one/cpu").check()
    page.get_by_label("B is two/cpu").check()
    record(folder, "cpu", "three", 0.1)
    expect(page.locator("h2", has_text="three")).to_be_visible(timeout=15_000)
    page.get_by_role("button", name="compare A with B").click()
    expect(page.locator(".answer .what")).to_contain_text("bit for bit")
    page.close()
    assert complaints == []


def test_a_row_knows_its_place_in_the_matrix(folder: Path) -> None:
    one = next(one for one in listed(folder) if one.name == "one")
    swapped = replace(one.runs[1], spec="cpu,kernel.sum=aten", swaps="kernel.sum=aten")
    modes, rows = replace(one, runs=[one.runs[0], swapped]).matrix
    assert list(modes) == ["cpu"]
    assert [(name, [cell and cell.swaps for cell in cells]) for name, cells in rows] == [
        ("no swaps", [""]),
        ("kernel.sum=aten", ["kernel.sum=aten"]),
    ]
