"""A disk that is full for a while: less is recorded, the run says so, and the training computes the same."""

from __future__ import annotations

from pathlib import Path

from tests.harness.recorder.trainings import plain, run

from numdrift.harness.records.run.step_selection import StepSelection

SCRIPT = """
import errno, os, sys
import torch

write, full = os.writev, [False]

def limited(descriptor, parts):
    if full[0]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(descriptor, parts)

os.writev = limited
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(150):
    full[0] = "--full" in sys.argv and 10 <= step < 20
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
"""


def test_a_full_disk_costs_the_details_of_some_steps(tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    # when
    ran = run(script, tmp_path / "full", "cpu", ("--full",))
    # then the training is as it is without a recording, and all of its losses are there
    assert ran.exit_code == 0
    assert ran.printed == plain(script, "cpu")
    losses = [float.fromhex(line) for line in ran.printed.splitlines()]
    assert ran.journal.losses == losses and ran.journal.damage is None
    # and the details of the steps for which there was room, up to the next try
    assert ran.journal.digest_steps() == [*range(10), *range(110, 150)]
    assert [text for text in ran.notices if "the disk is full at step 10" in text and "free some space" in text]
    assert "No space left on device; its lines wait in memory" in (ran.path / "stderr.log").read_text()


def test_the_steps_before_a_spike_wait_for_room(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("mean()", "mean() * (1000 if step == 18 else 1)"))
    ran = run(script, tmp_path / "full", "cpu", ("--full",), steps=StepSelection.parse("0-3,spikes"))
    assert ran.exit_code == 0 and len(ran.journal.losses) == 150
    # at step 20 there is room, and the steps from 12 on are still held
    assert ran.journal.digest_steps()[:19] == [0, 1, 2, 3, *range(12, 27)]
    assert [text for text in ran.notices if "the disk is full at step 18" in text]
