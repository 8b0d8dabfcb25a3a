"""`numdrift analyze`: the two cases that its guide explains, in lazy and in compiled mode, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import numdrift as interface
from numdrift.harness.errors import NotAvailable, UsageError

from ..conftest import ROOT, TINY, Numdrift
from ..processes.forked import python

SUPPORTED = ROOT / "reproducers" / "analyze_supported.py"
UNSUPPORTED = ROOT / "reproducers" / "analyze_unsupported.py"
WITHOUT_DEVICE = ROOT / "tests" / "e2e" / "scripts" / "without_device.py"
SUPPORT = ROOT / "tests" / "e2e" / "scripts" / "support.py"
FFT, PRODUCT = (
    next(number for number, line in enumerate(UNSUPPORTED.read_text().splitlines(), 1) if text in line)
    for text in ("fft.fft", " x * y")
)


GUIDE = (ROOT / "docs" / "guide" / "analyze.md").read_text().splitlines()


def check_guide(printed: str) -> None:
    """Every line of the tables and below them stands in the guide, but what was written where."""
    for line in printed.splitlines():
        assert line.rstrip() in GUIDE or line.startswith("Wrote "), line


def report(folder: Path, name: str = "model_analysis_result/result.json") -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / name).read_text())
    return data


@pytest.mark.slow
def test_the_unsupported_case_in_lazy_mode_at_both_verbosities(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("analyze", UNSUPPORTED, "--analyze-verbosity", "1")
    assert done.returncode == 0, done.stderr
    first = report(tmp_path)
    assert first["support_percentage"] == "66.67%"
    assert first["torch_version"] and first["mode"] == "lazy"
    assert first["supported_operators"]["aten"] == {"aten::add": 1, "aten::mul": 1}
    assert first["supported_operators"]["lazy"] == [
        "float32[4] aten::add(float32[4], int64[], int64[])",
        "complex64[4] aten::mul(float32[4], complex64[4])",
    ]
    (missing,) = first["unsupported_operators"]["lazy"]
    assert missing["aten_op"] == "aten::_fft_r2c"

    # when it is analysed again, at the other verbosity
    done = numdrift("analyze", UNSUPPORTED)
    check_guide(done.stdout)
    second = report(tmp_path)
    assert "Wrote model_analysis_result/result.json, which replaces an earlier one" in done.stdout
    assert list(second["supported_operators"]) == list(second["unsupported_operators"]) == ["aten"]
    assert second["support_percentage"] == first["support_percentage"]
    (entry,) = second["unsupported_operators"]["aten"]
    assert entry["kind"] == "aten::_fft_r2c"
    assert entry["failureAt"] == "lazy core"
    assert entry["call"] == f"analyze_unsupported.py:{FFT}"
    assert "analyze_unsupported.py" in (tmp_path / "model_analysis_result/result.html").read_text()


@pytest.mark.slow
def test_the_supported_case_in_lazy_mode(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("analyze", SUPPORTED, "--json", "-", "--analyze-verbosity", "1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == report(tmp_path)
    counts = found["supported_operators"]["aten"]
    assert (counts["aten::relu"], counts["aten::tanh"], counts["aten::addmm"]) == (2, 2, 4)
    missing = {one["kind"]: one["call"] for one in found["unsupported_operators"]["aten"]}
    assert set(missing) == {"aten::mse_loss", "aten::mse_loss_backward"}
    rows = found["instructions"]
    share = sum(row["supported"] for row in rows) / len(rows)
    assert found["support_percentage"] == f"{share * 100:.2f}%"


@pytest.mark.slow
@pytest.mark.usefixtures("trainings_are_forked")
def test_the_supported_case_in_python(tmp_path: Path) -> None:
    # when
    found = interface.analyze(SUPPORTED, out=tmp_path / "runs", output=tmp_path / "result.json")
    # then it says what the command says, at its verbosity
    assert (found.mode, found.percentage, found.exit_code, found.ended_early) == ("lazy", "93.10%", 0, "")
    assert [one.call.kind for one in found.unsupported] == ["aten::mse_loss", "aten::mse_loss_backward"]
    assert {one.kind for one in found.instructions if not one.supported} == {
        *("aten::mse_loss", "aten::mse_loss_backward"),
    }
    written = report(tmp_path, "result.json")
    assert written == found.to_json() and "instructions" not in written
    assert list(written["supported_operators"]) == list(written["unsupported_operators"]) == ["aten"]
    assert (tmp_path / "result.html").exists()
    # and as a frame
    frame = found.operators()
    assert frame[~frame["supported"]]["operator"].tolist() == ["aten::mse_loss", "aten::mse_loss_backward"]
    assert frame.set_index("operator")["calls"]["aten::addmm"] == 4


@pytest.mark.slow
@pytest.mark.usefixtures("trainings_are_forked")
@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"mode": "lasy"}, UsageError, "did you mean 'lazy'"),
        ({"mode": "mps"}, NotAvailable, "device 'mps' is not available"),
        ({"mode": "cpu", "dry": True}, NotAvailable, "a dry run in mode 'cpu'"),
        ({"verbosity": 3}, UsageError, "verbosity=3"),
        ({"max_steps": 0}, UsageError, "--max-steps 0"),
    ],
)
def test_in_python_wrong_input_raises_before_anything_starts(
    wrong: dict[str, Any], error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        interface.analyze(TINY, out=tmp_path / "runs", **wrong)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_what_a_script_without_a_device_calls_is_seen(numdrift: Numdrift, tmp_path: Path) -> None:
    # when tensors of the CPU are moved to where the model has been moved
    done = numdrift("analyze", WITHOUT_DEVICE, "--quiet")
    assert done.returncode == 0, done.stderr
    # then the forward and the clipping are seen, with their lines
    found = report(tmp_path)
    assert found["supported_operators"]["aten"]["aten::addmm"] == 8
    missing = found["unsupported_operators"]["aten"]
    assert sum(one["count"] for one in missing if one["kind"] == "aten::linalg_vector_norm") == 28
    (clipping,) = {one["call"] for one in missing if one["kind"] == "aten::linalg_vector_norm"}
    assert clipping.startswith("without_device.py:")


@pytest.mark.slow
def test_both_cases_in_compiled_mode(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("analyze", UNSUPPORTED, "--mode", "compile", "--analyze-verbosity", "1")
    assert done.returncode == 0, done.stderr
    check_guide(done.stdout)
    first = report(tmp_path)
    assert first["support_percentage"] == "33.33%"
    assert first["supported_operators"] == {
        "aten": {"aten::add": 1},
        "inductor": ["float32[4] Pointwise add(float32[4], 10)"],
    }
    missing = {one["kind"]: one for one in first["unsupported_operators"]["aten"]}
    assert missing["aten::mul"]["call"] == f"analyze_unsupported.py:{PRODUCT}"
    assert missing["aten::mul"]["configuration"] == "float32[4], complex64[4]"
    assert missing["aten::mul"]["failureAt"] == "inductor lowering"

    done = numdrift("analyze", SUPPORTED, "--mode", "compile", "--dry", "--output", "dry.json")
    dry = report(tmp_path, "dry.json")
    assert dry["dry"] and dry["support_percentage"] == "100.00%" and (tmp_path / "dry.html").exists()
    assert dry["supported_operators"]["aten"]["aten::tanh_backward"] == 1
    assert dry["unsupported_operators"] == {"aten": []}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lazy", "compile"])
def test_the_analysis_changes_no_bit(mode: str, numdrift: Numdrift, tmp_path: Path) -> None:
    numdrift("run", SUPPORT, "--mode", mode, "--out", "plain")
    done = numdrift("analyze", SUPPORT, "--mode", mode, "--out", "analysed")
    assert done.returncode == 0, done.stderr
    plain = tmp_path / "plain" / "support" / mode / "stdout.log"
    analysed = tmp_path / "analysed" / "support-analysis" / mode / "stdout.log"
    assert len(plain.read_text()) > 60
    assert analysed.read_text() == plain.read_text()
    found = report(tmp_path)
    assert list(found["supported_operators"]) == list(found["unsupported_operators"]) == ["aten"]
    missing = {one["kind"] for one in found["unsupported_operators"]["aten"]}
    if mode == "lazy":  # one operator in two configurations
        assert found["supported_operators"]["aten"]["aten::pow"] == 6
        assert "aten::pow" in missing
    else:  # although the run before has left all graphs in Inductor's cache
        assert found["supported_operators"]["aten"]["aten::pow"] == 3
        assert not missing


@pytest.mark.slow
def test_what_crashes_on_the_backend_is_a_finding(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("analyze", SUPPORT, "--", "--break", "backend")
    assert done.returncode == 0, done.stderr
    assert "an operator that the backend does not support ended the script" in done.stderr
    found = report(tmp_path)
    assert found["script"]["status"] == "crashed"
    entries = {one["kind"]: one for one in found["unsupported_operators"]["aten"]}
    assert entries["aten::_to_sparse"]["reason"].endswith("with arguments from the 'SparseLazy' backend.")
    assert entries["aten::_to_sparse"]["call"].startswith("support.py:")

    # when the script itself is wrong
    done = numdrift("analyze", SUPPORT, "--quiet", "--", "--break", "own")
    assert done.returncode == 3
    assert "an error ended the script" in done.stderr and "Traceback" not in done.stderr
    assert report(tmp_path)["unsupported_operators"] == {"aten": []}


@pytest.mark.slow
def test_a_script_that_is_killed_leaves_what_was_met(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("analyze", TINY, "--", "--at", "2", "--then", "kill")
    assert done.returncode == 3
    found = report(tmp_path)
    assert found["script"]["status"] == "killed"
    assert "aten::tanh" in found["supported_operators"]["aten"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["missing.py"], 2, "there is no script missing.py"),
        ([str(TINY), "--mode", "lasy"], 2, "did you mean 'lazy'"),
        ([str(TINY), "--mode", "cpu", "--dry"], 3, "a dry run in mode 'cpu' is not available"),
        ([str(TINY), "--mode", "compile,backend=aot_eager"], 3, "lowers nothing"),
        ([str(TINY), "--mode", "compile,backend=inductr"], 2, "did you mean 'inductor'"),
        ([str(TINY), "--mode", "mps"], 3, "device 'mps' is not available"),
        ([str(TINY), "--analyze-verbosity", "3"], 2, "--analyze-verbosity"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], code: int, said: str, numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("analyze", *arguments)
    assert done.returncode == code
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists() and not (tmp_path / "model_analysis_result").exists()


@pytest.mark.slow
def test_a_script_that_gives_the_backend_nothing_is_an_error(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("print('nothing')\n")
    done = numdrift("analyze", "nothing.py")
    assert done.returncode == 3
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("numdrift:")]
    assert "the script called no operator in mode lazy" in said and "name the script that calls the model" in said
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("script", "device"), [(SUPPORTED, "lazy"), (UNSUPPORTED, "cpu")])
def test_the_cases_are_plain_scripts(script: Path, device: str) -> None:
    python(Path.cwd(), script, DEVICE=device).check_returncode()
