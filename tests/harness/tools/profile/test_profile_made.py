"""From what a process left behind, whole or not, to a trace and its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.runs.recorded_run import RecordedRun
from numdrift.harness.tools.profile.profile_made import profile_of

from .events import range_, slice_

MANIFEST = RunManifest(
    mode="cpu", spec="cpu", suffix="", reproducer="train.py", script_sha256="", arguments=[], record="losses",
    started="", position=0, pickle="", status="complete", steps=5,
)  # fmt: skip
PLAN = {"event": "plan", "kind": "trace", "steps": "3-4", "duration": None, "limit": 1000}


def traced(step: int, *, whole: bool = True) -> dict[str, Any]:
    return {
        "event": "traced",
        "file": f"step-{step:06d}.json",
        "bytes": 10,
        "whole": whole,
        "step": step,
        "seconds": 1.0,
    }


def run(
    folder: Path,
    events: Sequence[Mapping[str, Any]],
    steps: Mapping[int, str],
    manifest: RunManifest = MANIFEST,
) -> RecordedRun:
    """A run whose process has written these events and traces of steps."""
    working = folder / "profile" / "working"
    working.mkdir(parents=True)
    lines = [json.dumps(one) for one in events]
    (folder / "profile" / "events.jsonl").write_text("\n".join(lines) + "\n")
    for step, text in steps.items():
        (working / f"step-{step:06d}.json").write_text(text)
    return RecordedRun(folder, manifest)


def step_trace(step: int) -> str:
    events = [range_(f"ProfilerStep#{step}", 0, 10), range_("phase: forward", 0, 8), slice_("aten::mm", 1, 2)]
    return json.dumps({"baseTimeNanoseconds": 0, "traceEvents": events})


def test_the_traces_of_the_steps_become_one(tmp_path: Path) -> None:
    there = run(tmp_path, [PLAN, traced(3), traced(4)], {3: step_trace(3), 4: step_trace(4)})
    profile = profile_of(there, keep_working=False)
    assert profile.steps == [3, 4]
    assert profile.step_milliseconds == [0.01, 0.01]
    trace = json.loads((tmp_path / "profile" / "trace.json").read_text())
    assert sum(one["name"] == "aten::mm" for one in trace["traceEvents"]) == 2
    assert {path.name for path in (tmp_path / "profile").iterdir()} == {"trace.json", "profile.json"}
    assert profile_of(there) == profile, "and it is read again as it was written"


def test_a_process_that_was_killed_leaves_the_steps_that_had_ended(tmp_path: Path) -> None:
    killed = replace(MANIFEST, status="killed", message="by SIGKILL")
    there = run(tmp_path, [PLAN, traced(3)], {3: step_trace(3)}, killed)
    with (tmp_path / "profile" / "events.jsonl").open("a") as file:
        file.write('{"event": "traced", "file')
    profile = profile_of(there)
    assert (profile.steps, profile.over, profile.problem) == ([3], "killed", "")


def test_a_step_whose_file_is_damaged_is_left_out_and_told(tmp_path: Path) -> None:
    there = run(tmp_path, [PLAN, traced(3), traced(4)], {3: step_trace(3), 4: '{"traceEvents": ['})
    profile = profile_of(there)
    assert profile.steps == [3]
    assert any("step 4 is lost" in text for text in profile.notices)


@pytest.mark.parametrize(
    ("manifest", "events", "said"),
    [
        (replace(MANIFEST, steps=2), [PLAN], "the script has 2 steps, but none of the requested steps 3-4"),
        (replace(MANIFEST, steps=0), [PLAN], "the script reached no step"),
        (replace(MANIFEST, status="killed", message="by SIGKILL"), [PLAN], "killed: by SIGKILL"),
        (MANIFEST, [PLAN, {"event": "over", "why": "profiler", "step": 3}], "runs its own torch profiler"),
        (
            replace(MANIFEST, notices=["profile failed and stops here: OSError: full"]),
            [PLAN],
            "OSError: full",
        ),
    ],
)
def test_why_there_is_no_trace_is_one_line(
    manifest: RunManifest, events: Sequence[Mapping[str, Any]], said: str, tmp_path: Path
) -> None:
    profile = profile_of(run(tmp_path, events, {}, manifest))
    assert said in profile.problem
    assert "\n" not in profile.problem
    assert not (tmp_path / "profile" / "trace.json").exists()


def test_a_run_that_was_not_profiled_says_how(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was not profiled"):
        profile_of(RecordedRun(tmp_path, MANIFEST))
