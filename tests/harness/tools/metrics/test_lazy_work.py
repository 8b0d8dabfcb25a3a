"""The lazy core's work as it is observed: compared with the core's own counters, and against a run without an observer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import contextlib, dataclasses, json, sys
import torch
from torch import nn
from numdrift.harness.backends.lazy.adapter import LazyWork
from numdrift.harness.torch_private.deferred.lazy import execute_lazy_op_by_op, lazy_mark_step, start_lazy_backend
from numdrift.harness.torch_private.deferred.lazy import lazy_counters

start_lazy_backend()
if "op" in sys.argv:
    undo = execute_lazy_op_by_op()
works, steps = [], []
observed = LazyWork(__file__, works.append) if "observed" in sys.argv else contextlib.nullcontext(lambda: None)
mark = lazy_mark_step()
torch.manual_seed(0)
losses = []
with observed as tell:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to("lazy")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    x = torch.randn(16, 4).to("lazy")  # upload
    for step in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        losses.append(loss.item().hex())  # item
        loss.backward()
        optimizer.step()  # optimizer
        mark()
        tell()
        steps.append(len(works))
    shown = (model[0].weight * 2).cpu()  # read
counters = lazy_counters()
lines = {text: f"train.py:{number}" for number, line in enumerate(open(__file__), 1)
         for text in ("upload", "item", "optimizer", "read") if line.rstrip().endswith(f"# {text}")}
print(json.dumps({
    "works": [dataclasses.astuple(one) for one in works], "steps": steps, "counters": counters, "lines": lines,
    "losses": losses, "parameters": [one.detach().cpu().flatten().tolist() for one in model.parameters()],
}))
"""


@dataclass(frozen=True)
class Ran:
    printed: dict[str, Any]
    hashes: list[str]

    def of(self, kind: str, name: str | None = None) -> list[Any]:
        return [one for one in self.printed["works"] if one[0] == kind and name in (None, one[1])]


def ran(folder: Path, *how: str) -> Ran:
    folder.mkdir()
    script, dump = folder / "train.py", folder / "graphs.txt"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), *how],
        env=os.environ | {"LTC_SAVE_TENSORS_FILE": str(dump)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    hashes = re.findall(r"^Hashes: .*$", dump.read_text(), re.MULTILINE)
    return Ran(json.loads(done.stdout), hashes)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("lazy") / "observed", "observed")


@pytest.mark.slow
def test_observing_changes_neither_graphs_nor_bits(observed: Ran, tmp_path: Path) -> None:
    plain = ran(tmp_path / "plain")
    assert observed.hashes == plain.hashes
    assert observed.printed["losses"] == plain.printed["losses"]
    assert observed.printed["parameters"] == plain.printed["parameters"]


def test_every_graph_is_told_of_once(observed: Ran) -> None:
    counters = observed.printed["counters"]
    compiles = Counter(one[4] for one in observed.of("compile"))
    assert compiles == {False: counters["UncachedCompile"], True: counters["CachedCompile"]}
    assert len(observed.of("execute")) == compiles.total()
    assert all(isinstance(one[3], int) and one[3] > 1 for one in observed.of("execute"))


def test_what_cut_a_graph_is_its_name(observed: Ran) -> None:
    lines = observed.printed["lines"]
    places = {(one[1], one[5]) for one in observed.of("execute")}
    assert {("item", lines["item"]), ("read", lines["read"])} <= places
    assert ("fallback aten::lerp.Scalar", lines["optimizer"]) in places
    assert len(observed.of("execute", "mark_step")) == 3
    assert len(observed.of("execute", "item")) == 3


def test_each_fallback_has_its_cost(observed: Ran) -> None:
    # AdamW interpolates the momentum of each of the four parameters
    found = observed.of("fallback")
    assert len(found) == observed.printed["counters"]["aten::lerp.Scalar"] == 12
    assert {(one[1], one[5]) for one in found} == {("aten::lerp.Scalar", observed.printed["lines"]["optimizer"])}
    assert all(0 < one[2] < 10 for one in found)
    # and those of a step were told when it had ended
    first = observed.printed["works"][: observed.printed["steps"][0]]
    assert sum(one[0] == "fallback" for one in first) == 4


def test_transfers_have_their_bytes(observed: Ran) -> None:
    up = observed.of("transfer", "to device")
    uploads = [one[3] for one in up if one[5] == observed.printed["lines"]["upload"]]
    assert uploads == [16 * 4 * 4]
    read = [one for one in observed.of("transfer", "from device") if one[5] == observed.printed["lines"]["read"]]
    assert [one[3] for one in read] == [8 * 4 * 4]
    assert (
        sum(
            one[3]
            for one in observed.of("transfer", "from device")
            if one[5].endswith(observed.printed["lines"]["item"])
        )
        == 12
    )


@pytest.mark.slow
def test_op_by_op_gives_the_same_bits_and_small_graphs(observed: Ran, tmp_path: Path) -> None:
    by_op = ran(tmp_path / "op", "observed", "op")
    assert by_op.printed["losses"] == observed.printed["losses"]
    assert by_op.printed["parameters"] == observed.printed["parameters"]
    # each op is a graph that has been executed when a value is read or a mark_step comes
    names = {one[1] for one in by_op.of("execute")}
    assert {"aten::addmm", "aten::tanh", "aten::t_copy"} <= names
    assert not names & {"read", "item", "mark_step"}
    assert max(one[3] for one in by_op.of("execute")) < 10
    # and an op that has been there is found
    last = by_op.printed["works"][by_op.printed["steps"][1] : by_op.printed["steps"][2]]
    assert {one[4] for one in last if one[0] == "compile"} == {True}
