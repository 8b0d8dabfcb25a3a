"""What recording launches and copies on an accelerator: the same in every step, for a model of any size."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift import load_run
from numdrift.harness.observers.values.digest import Digester, hash_text

from .conftest import Standin
from .scripts_trained import WIDE

pytestmark = pytest.mark.slow

SCRIPT = """\
import sys

import torch
from torch import nn

torch.manual_seed(0)
deep = (layer for _ in range(int(sys.argv[1])) for layer in (nn.Tanh(), nn.Linear(300, 300)))
model = nn.Sequential(nn.Linear(8, 300), *deep, nn.Linear(300, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    print("work", torch.standin.launches(), *torch.standin.copies()[:2])
    loss = model(torch.randn(16, 8).cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("sums", [parameter.cpu().double().sum().item() for parameter in model.parameters()])
"""

DEPTHS = (0, 2, 8)
LEVELS = {
    "losses": ("--record", "losses"),
    "digests": ("--record", "params", "--keep-params", "last"),
    "params": ("--record", "params"),
}

MOST_LAUNCHES = {0: 1, 2: 96, 8: 96}
"""The kernels that a step's digests launch, by the depth of the model: up to 16 MiB need the same. The tensors of the
smallest model are copied together."""


@dataclass(frozen=True, slots=True)
class Work:
    """What happens on the device in each of the later steps: launches, and copies to and from it."""

    launches: int
    to_device: int
    to_host: int

    def beyond(self, other: Work) -> Work:
        return Work(self.launches - other.launches, self.to_device - other.to_device, self.to_host - other.to_host)


@pytest.fixture(scope="module")
def trained(standin_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Standin:
    """A folder with runs of a small and of a deeper model at each level of recording."""
    standin = Standin(tmp_path_factory.mktemp("trained"), standin_site)
    (standin.folder / "train.py").write_text(SCRIPT)
    for level, options in LEVELS.items():
        for depth in DEPTHS:
            name = f"{level}{depth}"
            done = standin(
                "run", "train.py", "--modes", "standin", *options, "--name", name, "--quiet", "--", str(depth)
            )
            assert done.returncode == 0, done.stderr
    return standin


def lines(standin: Standin, run: str, first_word: str) -> list[str]:
    log = standin.folder / "runs" / run / "standin" / "stdout.log"
    return [line for line in log.read_text().splitlines() if line.startswith(first_word)]


def work(standin: Standin, run: str) -> Work:
    """Return the work of a step, once all steps are alike."""
    counts = [Work(*map(int, line.split()[1:])) for line in lines(standin, run, "work")]
    *_, before, last = (later.beyond(earlier) for earlier, later in itertools.pairwise(counts))
    assert before == last
    return last


@pytest.mark.parametrize("depth", DEPTHS)
def test_digests_cost_a_few_launches_and_one_copy_a_step(trained: Standin, depth: int) -> None:
    added = work(trained, f"digests{depth}").beyond(work(trained, f"losses{depth}"))

    assert added.launches <= MOST_LAUNCHES[depth]
    assert (added.to_device, added.to_host) == (0, 2), "the digests, and the batch"


@pytest.mark.parametrize("depth", DEPTHS)
def test_kept_values_cost_one_copy_a_step(trained: Standin, depth: int) -> None:
    added = work(trained, f"params{depth}").beyond(work(trained, f"digests{depth}"))

    assert added == Work(1, 0, 1)


@pytest.mark.parametrize("depth", DEPTHS)
def test_recording_changes_no_bit(trained: Standin, depth: int) -> None:
    losses, digests, params = (lines(trained, f"{level}{depth}", "sums") for level in LEVELS)

    assert losses == digests == params and len(losses) == 1


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_digests_are_those_of_the_kept_values(trained: Standin, depth: int) -> None:
    kept, digested = (
        load_run(trained.folder / "runs" / f"{level}{depth}" / "standin") for level in ("params", "digests")
    )
    names = [*kept.parameters(0)]

    assert len(names) == 2 * (depth + 2)
    for run in (kept, digested):
        table = run.digests()["hash"]
        for step in range(5):
            for name, value in kept.parameters(step).items():
                expected = hash_text(Digester().digest([torch.tensor(value)]))
                assert table[name, "value", step] == expected


def test_swapped_kernels_neither_compute_nor_count_digests(trained: Standin) -> None:
    calls = []
    for level in ("losses", "params"):
        mode, name = "swapped=standin,kernel.sum=pairwise", f"swapped-{level}"
        done = trained("run", "train.py", "--mode", mode, *LEVELS[level], "--name", name, "--quiet", "--", "2")
        assert done.returncode == 0, done.stderr
        manifest = json.loads((trained.folder / "runs" / name / "swapped" / "run.json").read_text())
        calls += [swap["calls"] for swap in manifest["swaps"]]

    assert calls[0] == calls[1] and calls[0]["backward"] > 0


def test_a_device_without_memory_for_digests_is_copied_from(standin: Standin) -> None:
    (standin.folder / "train.py").write_text(WIDE)
    hashes: list[Any] = []
    for name, mebibytes in (("enough", 1024), ("scarce", 26)):
        memory = str(mebibytes << 20)
        done = standin("run", "train.py", "--modes", "standin", "--name", name, STANDIN_MEMORY=memory)
        assert done.returncode == 0, done.stderr
        copied = "are copied to the CPU for their digests at each step" in done.stdout + done.stderr
        assert copied == (name == "scarce")
        hashes.append(load_run(standin.folder / "runs" / name / "standin").digests()["hash"].to_dict())

    assert hashes[0] == hashes[1] and len(hashes[0]) == 4 * 12
