from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from numdrift.harness.localize.localizer_process import main
from numdrift.harness.records.results.localization_record import read_localization


def config(folder: Path, **sides: Path) -> Path:
    """The file that tells the localizer what to do."""
    described = {
        side: {"label": side, "tapes": str(tapes), "socket": "", "outcome": "", "spec": "cpu"}
        for side, tapes in sides.items()
    }
    content: dict[str, Any] = {
        **described,
        "step": 3,
        "noise": str(folder),
        "threshold": 16.0,
        "folder": str(folder),
        "threads": torch.get_num_threads(),  # it sets those of this process
        "interpreter": "",
        "inputs": {},
    }
    path = folder / "localizer.json"
    path.write_text(json.dumps(content))
    return path


def test_why_a_step_has_no_tape_is_the_reason(tmp_path: Path) -> None:
    tapes = tmp_path / "tapes"
    tapes.mkdir()
    (tapes / "noise-000003.json").write_text(json.dumps({"step": 3, "reason": "a collective is in it"}))

    assert main(config(tmp_path, a=tapes, b=tapes)) == 0

    found = read_localization(tmp_path)
    assert found is not None
    assert found.reason == "a has no tape of step 3: a collective is in it"
