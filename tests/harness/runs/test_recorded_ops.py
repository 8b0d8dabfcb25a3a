from __future__ import annotations

import json
from pathlib import Path

from numdrift.harness.records.values.digest_record import Digest, pack
from numdrift.harness.runs.recorded_ops import first_nan


def line(index: int, op: str, nan: int = 0, inf: int = 0) -> str:
    record = pack(Digest(1, 4, nan, inf, 0.0, 1.0, 0.5, 1.0)).hex()
    return json.dumps({"step": 7, "index": index, "phase": "backward", "op": op, "digests": [record, record]}) + "\n"


def test_the_first_op_with_a_nan_is_found(tmp_path: Path) -> None:
    lines = [line(0, "aten.mul"), line(1, "aten.masked_fill", inf=2), "torn\n", line(2, "aten.div", nan=1)]
    (tmp_path / "ops.jsonl").write_text("".join([*lines, line(3, "aten.sum", nan=1)]))
    found = first_nan(tmp_path)
    assert found is not None and found.text == "aten.div in the backward of step 7 (op 2)"


def test_a_run_without_a_nan_has_none(tmp_path: Path) -> None:
    assert first_nan(tmp_path) is None
    (tmp_path / "ops.jsonl").write_text(line(0, "aten.mul") + '{"step": 1}\n')
    assert first_nan(tmp_path) is None
