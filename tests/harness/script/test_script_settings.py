"""What a script sets torch to is noted with its line, and does not undo what the mode states."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from numdrift.harness.errors import UsageError
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.adoption_facts import AdoptionFacts
from numdrift.harness.script.script_settings import FollowedSettings
from numdrift.harness.tape.files.tape_file import read_tape, write_tape
from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.stated_settings import put_stated, same_value
from numdrift.harness.tape.step_settings import current_settings, device_settings, put_settings, setting_lines
from numdrift.harness.torch_private.patches import patched_names


@dataclass
class Told:
    """The facts about a script, and who follows it."""

    facts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    settings: FollowedSettings | None = None


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = current_settings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    put_settings(before)
    setting_lines.lines.clear()


@contextmanager
def followed(mode: str) -> Iterator[Told]:
    told, spec = Told(), parse_mode(mode)
    put_stated(spec)

    def write(event: str, **fields: str) -> None:
        told.facts.append(fields["text"])
        told.lines.append(fields["source"])

    told.settings = FollowedSettings(spec, __file__, AdoptionFacts(write))
    told.settings.install()
    try:
        yield told
    finally:
        told.settings.close()
    assert not [name for holder, name in patched_names() if holder is torch._C]


def test_what_the_mode_does_not_state_is_the_scripts_to_set_and_noted_with_its_line() -> None:
    with followed("cuda,cudnn=on") as told:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.enable_flash_sdp(False)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        torch.set_num_threads(torch.get_num_threads())  # what is so already is not set
    assert told.facts == [
        "tf32=on", "matmul_precision=highest", "benchmark=on", "attention.flash=off", "deterministic=on", "mkldnn=off",
    ]  # fmt: skip
    assert all(line.startswith(f"{__file__}:") for line in told.lines) and len(set(told.lines)) == 6
    assert not torch.backends.mkldnn.enabled and torch.backends.cudnn.benchmark
    assert setting_lines.lines["mkldnn"] == told.lines[-1] and "threads" not in setting_lines.lines


def test_a_deterministic_mode_keeps_its_kernels_of_attention() -> None:
    with followed("cuda,deterministic=on") as told:
        torch.backends.cuda.enable_flash_sdp(True)
        torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
        after = current_settings()
    assert not after["attention.flash"] and not after["fill_uninitialized_memory"]
    assert told.facts and all(text.endswith("overridden by the mode's deterministic=on") for text in told.facts)


def test_what_the_mode_states_is_not_undone_by_the_script() -> None:
    mode = "cuda,tf32=off,sdpa=math,benchmark=off,deterministic=on,threads=1,reduced_precision_reduction=off"
    with followed(mode) as told:
        stated = current_settings()
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.enable_flash_sdp(True)
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(2)
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), torch.backends.cudnn.flags(benchmark=True):
            within = current_settings()
        after = current_settings()
    assert all(same_value(stated[name], after.get(name)) for name in stated)
    assert [name for name in stated if not same_value(stated[name], within.get(name))] == ["cudnn"]
    assert told.facts[0] == "tf32=products, overridden by the mode's tf32=off"
    assert "threads=2, overridden by the mode's threads=1" in told.facts
    assert any(text.endswith("overridden by the mode's sdpa=math") for text in told.facts)
    # nothing is said of the script's that is not so
    assert "tf32" not in {name.partition("=")[0] for name in told.facts if "overridden" not in name}
    assert "precision.cuda.matmul" not in setting_lines.lines and "threads" not in setting_lines.lines


@pytest.mark.skipif(not hasattr(torch._C, "_set_fp32_precision_setter"), reason="this torch has the switches alone")
def test_neither_do_the_precisions_of_torch_2_9_undo_it() -> None:
    with followed("cuda,tf32=off"):
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]
        torch.backends.cudnn.fp32_precision = "tf32"
        # the switch can still be read
        assert not torch.backends.cuda.matmul.allow_tf32
        assert current_settings()["precision.cuda.conv"] != "tf32"


@pytest.mark.skipif(not hasattr(torch._C, "_set_fp32_precision_setter"), reason="this torch has the switches alone")
def test_a_precision_of_torch_2_9_is_told_by_the_key_that_stands_for_it() -> None:
    with followed("cuda") as told:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32" and told.facts == ["tf32=on"]


def test_a_context_is_told_once_and_leaves_no_line() -> None:
    with followed("cpu") as told:
        for _ in range(3):
            with sdpa_kernel(SDPBackend.MATH):
                assert not torch.backends.cuda.flash_sdp_enabled()
                inside = dict(setting_lines.lines)
            assert torch.backends.cuda.flash_sdp_enabled()
    assert told.facts == ["sdpa=math"] and inside["attention.flash"] == told.lines[0]
    assert not setting_lines.lines


def test_whoever_comes_after_the_script_or_beside_it_sets_what_he_likes() -> None:
    with followed("cpu,threads=1,mkldnn=on") as told:
        assert told.settings is not None
        told.settings.forget()  # as in a data loader's worker
        torch.set_num_threads(2)
        assert torch.get_num_threads() == 2 and not told.facts
    with followed("cpu,mkldnn=on"):
        # a step is executed again past the script's functions
        put_settings({"mkldnn": False})
        assert not torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    assert not torch.backends.mkldnn.enabled


def test_a_tape_knows_the_lines_and_the_devices_own_settings(tmp_path: Path) -> None:
    # given a device with a setting of its own
    rounding = ["nearest"]
    withdraw = device_settings.declare(
        {"toy.rounding": (lambda: rounding[0], lambda wanted: rounding.__setitem__(0, wanted))}
    )
    try:
        with pytest.raises(UsageError, match=r"toy\.rounding"):
            device_settings.declare({"toy.rounding": (list, print)})
        with pytest.raises(UsageError, match="threads"):
            device_settings.declare({"threads": (list, print)})
        with followed("cpu"):
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
            recorder = TapeRecorder(0, __file__, modules=False)
            recorder.start()
            recorder.watch("loss", torch.ones(3).sum())
            recorder.stop()
        write_tape(tmp_path / "tape", recorder.tape())
        found = read_tape(tmp_path / "tape")
        assert found.settings["toy.rounding"] == "nearest" and found.settings["mkldnn"] is False
        assert found.set_at["mkldnn"].startswith(f"{__file__}:")
        put_settings({"toy.rounding": "down"})
        assert rounding == ["down"]
    finally:
        withdraw()
    assert "toy.rounding" not in current_settings()
