from __future__ import annotations

import json
import runpy
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import JournalError
from numdrift.harness.launch.guest_process import Launch, start
from numdrift.harness.records import frames
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import KeepParams
from numdrift.harness.records.values.digest_record import ABSENT, RECORD_BYTES, Digest, pack
from numdrift.harness.runs.journal import InitialTensor, Journal
from numdrift.harness.tape.files.journal_writing import EventLog, FrameFile

STEPS = 7
SCRIPT = f"""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Linear(4, 1)
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.empty = torch.nn.Parameter(torch.ones(0, 3))
        self.scale = torch.nn.Parameter(torch.tensor(1.1, dtype=torch.bfloat16))

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x)))) * self.scale.float()

torch.manual_seed(0)
torch.set_num_threads(1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, states = [], []
for step in range({STEPS}):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    states.append({{name: tensor.detach().clone() for name, tensor in model.state_dict().items()}})
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def recorded(script: Path) -> Path:
    """The journal of one recorded run; nothing in it is to be changed."""
    folder = script.parent / "journal"
    folder.mkdir()
    config = RunConfig(str(script), parse_mode("cpu"), str(folder), keep_params=KeepParams(every=3))
    (script.parent / "config.json").write_text(json.dumps(config.to_json()))
    logs = script.parent / "stdout.log", script.parent / "stderr.log"
    launch = Launch("cpu", config.mode, script.parent / "config.json", folder / frames.EVENTS, *logs)
    assert start(launch).wait(60) == 0, logs[1].read_text()
    return folder


@pytest.fixture(scope="module")
def reference(script: Path) -> dict[str, Any]:
    """The script's variables after it ran by itself, in plain PyTorch."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng():
            return runpy.run_path(str(script))
    finally:
        torch.set_num_threads(threads)


@contextmanager
def copy_of(journal: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield shutil.copytree(journal, Path(name) / "journal")


def everything(journal: Journal) -> dict[str, Any]:
    """All that a reader gives, in a form that compares bit for bit."""
    return {
        "steps": journal.steps,
        "tables": journal.tables,
        "initial": {name: repr(one) for name, one in journal.initial().items()},
        "digests": {step: repr(digests) for step, digests in journal.digests()},
        "values": {
            step: {name: array.tobytes() for name, array in journal.values(step).items()}
            for step in journal.value_steps
        },
    }


def assert_prefix(part: dict[str, Any], whole: dict[str, Any]) -> None:
    assert part["steps"] == whole["steps"][: len(part["steps"])]
    for kind in ("tables", "initial", "digests", "values"):
        assert part[kind].items() <= whole[kind].items(), kind


@pytest.mark.slow
def test_losses_are_those_of_plain_pytorch(recorded: Path, reference: dict[str, Any]) -> None:
    journal = Journal(recorded)
    assert [(record.step, record.loss) for record in journal.steps] == [*enumerate(reference["losses"])]
    seconds = [record.seconds for record in journal.steps]
    assert seconds == sorted(seconds) and seconds[0] >= 0
    assert journal.damage is None
    assert journal.end is not None and journal.end["status"] == "complete"


def test_values_are_those_of_plain_pytorch(recorded: Path, reference: dict[str, Any]) -> None:
    journal = Journal(recorded)
    assert journal.value_steps == [0, 3, 6]
    for step in journal.value_steps:
        values, expected = journal.values(step), reference["states"][step]
        assert values.keys() == expected.keys()
        for name, tensor in expected.items():
            plain = tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
            assert values[name].dtype == plain.dtype and values[name].shape == plain.shape, name
            assert values[name].tobytes() == plain.tobytes(), name


def test_dtypes_are_torchs(recorded: Path, reference: dict[str, Any]) -> None:
    dtypes = {name: str(tensor.dtype) for name, tensor in reference["states"][0].items()}
    assert {name: f"torch.{dtype}" for name, dtype in Journal(recorded).dtypes().items()} == dtypes


def test_values_cannot_be_changed(recorded: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        Journal(recorded).values(0)["first.weight"][0, 0] = 1.0


def test_digests_are_there_for_every_step(recorded: Path, reference: dict[str, Any]) -> None:
    # given
    digests = dict(Journal(recorded).digests())
    # then
    assert list(digests) == list(range(STEPS))
    for step, found in digests.items():
        assert found.values.keys() == reference["states"][step].keys()
        weight = reference["states"][step]["first.weight"]
        assert found.values["first.weight"].numel == weight.numel()
        assert found.values["first.weight"].maximum == weight.max().item()
    # and of gradients for parameters alone, None where there is none
    gradients = digests[0].gradients
    assert "norm.running_mean" not in gradients and gradients["first.weight"] is not None
    assert gradients["unused"] is None


def test_a_step_that_was_not_kept_is_a_key_error(recorded: Path) -> None:
    with pytest.raises(KeyError):
        Journal(recorded).values(1)


def test_a_folder_without_a_journal_reads_as_empty(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert everything(journal) == {"steps": [], "tables": {}, "initial": {}, "digests": {}, "values": {}}
    assert journal.end is None and journal.damage is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_cut_off_at_any_byte_yields_a_prefix(recorded: Path, data: st.DataObject) -> None:
    with copy_of(recorded) as folder:
        # given
        whole = everything(Journal(recorded))
        file = data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: data.draw(st.integers(0, len(content)))])
        # when
        journal = Journal(folder)
        part = everything(journal)
        # then
        assert_prefix(part, whole)
        assert journal.damage is None
        if file != frames.EVENTS:
            assert part["steps"] == whole["steps"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_changed_byte_is_a_journal_error_at_most(recorded: Path, data: st.DataObject) -> None:
    with copy_of(recorded) as folder:
        file = data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
        content = bytearray((folder / file).read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        (folder / file).write_bytes(content)
        read_all(folder)


def read_all(folder: Path) -> None:
    """Read what can be read, as whoever shows a run does."""
    journal = Journal(folder)
    for read in (
        lambda: dict(journal.digests()),
        lambda: journal.value_steps,
        journal.dtypes,
        journal.initial,
        journal.hyper,
    ):
        read_or_refuse(read)
    for step in journal.value_steps:
        read_or_refuse(lambda step=step: journal.values(step))  # type: ignore[misc]


def read_or_refuse(read: Callable[[], object]) -> None:
    try:
        read()
    except JournalError as error:
        assert "\n" not in str(error)


def write_journal(folder: Path, *lines: object) -> None:
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / frames.EVENTS).write_text("".join(f"{line}\n" for line in text))


def step_line(step: int) -> dict[str, Any]:
    return {"event": "step", "step": step, "losses": [0.5], "seconds": 0.1}


INITIAL = '{"name":"w","kind":"parameter","shape":[2],"dtype":"float32","digest":"%s"}'


@pytest.mark.parametrize(
    "damaged",
    [
        '{"event":"step","step":1,"los',
        "\x00\x00\x00",
        "[]",
        "3",
        "null",
        '"event"',
        "{}",
        "[" * 100_000,
        '{"event":"step"}',
        '{"event":"step","step":"1","losses":[0.5],"seconds":0.1}',
        '{"event":"step","step":1,"losses":["many"],"seconds":0.1}',
        '{"event":"step","step":1,"losses":null,"seconds":0.1}',
        '{"event":"step","step":1,"losses":[1' + "0" * 400 + '],"seconds":0.1}',
        '{"event":"tensors","table":0}',
        '{"event":"tensors","table":[0],"tensors":[]}',
        '{"event":"tensors","table":0,"tensors":[{"name":"w"}]}',
        '{"event":"tensors","table":0,"tensors":[{"name":["w"],"kind":"p","shape":[],"dtype":"bool"}]}',
        '{"event":"tensors","table":0,"tensors":[{"name":"w","kind":"p","shape":[-1],"dtype":"bool"}]}',
        '{"event":"tensors","table":0,"tensors":[{"name":"w","kind":"p","shape":[0.5],"dtype":"bool"}]}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"generators":[]}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"generators":{"torch":5}}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"generators":null}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"batches":null}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"batches":["text"]}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"batches":[[["float32",[2]]]]}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"batches":[[["float32",[-2],"00"]]]}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"batches":[[["float32",2,"00"]]]}',
        '{"event":"step","step":1,"losses":[],"seconds":1,"batches":[[["float32",[2],7]]]}',
        '{"event":"initial","step":0}',
        '{"event":"initial","tensors":[{"name":"w","kind":"p","shape":[2],"dtype":"bool"}]}',
        f'{{"event":"initial","tensors":[{INITIAL % ("zz" * RECORD_BYTES)}]}}',
        f'{{"event":"initial","tensors":[{INITIAL % ("00" * (RECORD_BYTES - 1))}]}}',
        f'{{"event":"initial","tensors":[{(INITIAL % ("00" * RECORD_BYTES)).replace("[2]", "null")}]}}',
        '{"event":"hyper","step":0}',
        '{"event":"hyper","step":null,"optimizers":[]}',
        '{"event":"hyper","step":0,"optimizers":{}}',
        '{"event":"hyper","step":0,"optimizers":[{"class":"SGD"}]}',
        '{"event":"hyper","step":0,"optimizers":[{"class":1,"groups":[]}]}',
        '{"event":"hyper","step":0,"optimizers":[{"class":"SGD","groups":[3]}]}',
        '{"event":"end"}',
        '{"event":"notice"}',
    ],
    ids=lambda line: line[:60],
)
def test_a_damaged_line_is_reported_and_ends_the_reading(tmp_path: Path, damaged: str) -> None:
    # given
    write_journal(tmp_path, {"event": "start"}, step_line(0), damaged, step_line(1))
    # when
    journal = Journal(tmp_path)
    # then
    assert [record.step for record in journal.steps] == [0]
    assert not journal.initial() and not journal.hyper()
    assert journal.damage == f"{tmp_path / frames.EVENTS}: line 3 is damaged; it and all later lines are ignored"


def test_the_setup_is_read_in_full(tmp_path: Path) -> None:
    # given two adoptions, and hyper-parameters that change
    digests = [Digest(7 + n, 2, 0, 0, -1.0, 1.0, 0.0, 1.5) for n in range(3)]
    tensors = [
        {**entry(name, [2], "float32"), "digest": pack(digest).hex()}
        for name, digest in zip(("w", "v", "u"), digests, strict=True)
    ]
    groups = [[{"class": "SGD", "groups": [{"lr": lr, "params": ["w"]}]}] for lr in (0.1, 0.05)]
    batch = [["int64", [2, 3], "00ff"], ["bool", [], ""]]
    write_journal(
        tmp_path,
        {"event": "initial", "step": 0, "tensors": tensors[:2]},
        {"event": "hyper", "step": 0, "optimizers": groups[0]},
        step_line(0) | {"generators": {"torch": "0a", "python": "0b"}, "batches": [batch, []]},
        {"event": "initial", "step": 1, "tensors": tensors[2:]},
        {"event": "hyper", "step": 1, "optimizers": groups[1]},
        step_line(1),
    )
    # when
    journal = Journal(tmp_path)
    # then
    assert journal.damage is None
    assert journal.initial() == {
        name: InitialTensor(name, "parameter", (2,), "float32", digest)
        for name, digest in zip(("w", "v", "u"), digests, strict=True)
    }
    assert journal.hyper() == [(0, groups[0]), (1, groups[1])]
    first, second = journal.steps
    assert first.generators == {"torch": "0a", "python": "0b"}
    assert first.batches == ((("int64", (2, 3), "00ff"), ("bool", (), "")), ())
    assert second.generators == {} and second.batches == ()


def test_unknown_events_are_passed_over(tmp_path: Path) -> None:
    write_journal(tmp_path, {"event": "weather", "sky": "blue"}, step_line(0))
    journal = Journal(tmp_path)
    assert [record.step for record in journal.steps] == [0] and journal.damage is None
    assert journal.events("weather") == [{"event": "weather", "sky": "blue"}]


def test_a_frame_without_its_step_line_is_not_used(tmp_path: Path) -> None:
    # given a run that was killed between the frame and the line of step 1
    log, values = EventLog(tmp_path / frames.EVENTS), FrameFile(tmp_path / frames.values_file(0))
    log.write("tensors", table=0, tensors=[entry("w", [2], "float32")])
    for step in (0, 1):
        values.frame(0, step, [struct.pack("<2f", step, 1.0)], 8)
    log.write(**step_line(0))
    # when
    journal = Journal(tmp_path)
    # then
    assert journal.value_steps == [0]
    assert journal.values(0)["w"].tolist() == [0.0, 1.0]


def test_a_step_in_two_files_is_one(tmp_path: Path) -> None:
    log = EventLog(tmp_path / frames.EVENTS)
    log.write("tensors", table=0, tensors=[entry("w", [1], "float32")])
    log.write(**step_line(0))
    for name in (frames.values_file(63), frames.LAST_VALUES):
        FrameFile(tmp_path / name).frame(0, 0, [struct.pack("<f", 2.5)], 4)
    assert Journal(tmp_path).value_steps == [0]


def entry(name: str, shape: list[Any], dtype: str) -> dict[str, Any]:
    return {"name": name, "kind": "parameter", "shape": shape, "dtype": dtype}


def hostile(folder: Path, table: int, *entries: dict[str, Any]) -> Journal:
    """A journal of one step with 8 bytes of values and one digest, under a table of its own making."""
    write_journal(folder, {"event": "tensors", "table": 0, "tensors": list(entries)}, step_line(0))
    FrameFile(folder / frames.values_file(63)).frame(table, 0, [b"\0" * 8], 8)
    FrameFile(folder / frames.DIGESTS).frame(table, 0, [b"\0" * RECORD_BYTES], RECORD_BYTES)
    return Journal(folder)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry("w", [1], "object")], "w has the dtype object, which NumPy lacks"),
        ([entry("w", [1], "O")], "has the dtype O"),
        ([entry("w", [1], "V8")], "has the dtype V8"),
        ([entry("w", [1], "datetime64[ns]")], "has the dtype datetime64"),
        ([entry("w", [8], "quint8")], "has the dtype quint8"),
        ([entry("w", [3], "float32")], "needs more bytes than its frame has"),
        ([entry("w", [2**40, 2**40], "float32")], "needs more bytes than its frame has"),
        ([entry("w", [2**62, 4], "float32")], "needs more bytes than its frame has"),
        (
            [entry("w", [2], "float32"), entry("v", [1], "bool")],
            "needs more bytes than its frame has",
        ),
        ([entry("w", [1], "float32")], "step 0 has 8 bytes, but its table requires a different number"),
        ([], "step 0 has 8 bytes, but its table requires a different number"),
    ],
)
def test_values_that_do_not_fit_their_table(tmp_path: Path, entries: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(JournalError) as raised:
        hostile(tmp_path, 0, *entries).values(0)
    assert said in str(raised.value)


def test_digests_that_do_not_fit_their_table(tmp_path: Path) -> None:
    journal = hostile(tmp_path, 0, entry("w", [2], "float32"))
    with pytest.raises(JournalError, match="step 0 has 1 digest, but its table requires a different number"):
        dict(journal.digests())


def test_frames_of_a_table_that_is_not_there_are_passed_over(tmp_path: Path) -> None:
    journal = hostile(tmp_path, 5, entry("w", [2], "float32"))
    assert journal.value_steps == [] and dict(journal.digests()) == {}


def test_values_that_were_thinned_out_meanwhile(tmp_path: Path) -> None:
    # given a reader that has seen a file which the running recorder then removes
    journal = hostile(tmp_path, 0, entry("w", [2], "float32"))
    assert journal.value_steps == [0]
    (tmp_path / frames.values_file(63)).unlink()
    # when
    with pytest.raises(JournalError, match="can no longer be read"):
        journal.values(0)


@pytest.mark.parametrize("left", [0, 20])
def test_values_that_were_cut_off_meanwhile(tmp_path: Path, left: int) -> None:
    journal = hostile(tmp_path, 0, entry("w", [2], "float32"))
    assert journal.value_steps == [0]
    with (tmp_path / frames.values_file(63)).open("r+b") as file:
        file.truncate(left)
    with pytest.raises(JournalError):
        journal.values(0)


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex64"])
def test_eight_bytes_of_every_kind(tmp_path: Path, dtype: str) -> None:
    values = hostile(tmp_path, 0, entry("w", [], dtype), entry("empty", [0, 3], dtype)).values(0)
    assert values["w"].dtype == np.dtype(dtype) and values["w"].shape == () and values["w"] == 0
    assert values["empty"].shape == (0, 3)


@pytest.mark.parametrize(
    "dtype", ["float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu", "complex32"]
)
def test_dtypes_that_numpy_lacks_have_their_numbers(tmp_path: Path, dtype: str) -> None:
    # given all patterns of the dtype, or many
    torch_dtype = getattr(torch, dtype)
    integers = torch.arange(0, 2**31, 2**13 + 1, dtype=torch.int32) if dtype == "complex32" else torch.arange(256)
    bits = integers if dtype == "complex32" else integers.to(torch.uint8)
    expected = bits.view(torch_dtype).to(torch.complex64 if torch_dtype.is_complex else torch.float32).numpy()
    log = EventLog(tmp_path / frames.EVENTS)
    log.write("tensors", table=0, tensors=[entry("w", [len(bits)], dtype)])
    log.write(**step_line(0))
    FrameFile(tmp_path / frames.values_file(63)).frame(0, 0, [bits.numpy().tobytes()], bits.nbytes)
    # when
    found = Journal(tmp_path).values(0)["w"]
    # then
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@given(st.integers(0, 2**16 - 1))
def test_bfloat16_is_widened_exactly(bits: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        # given
        folder = Path(name)
        log = EventLog(folder / frames.EVENTS)
        log.write("tensors", table=0, tensors=[entry("w", [1], "bfloat16")])
        log.write(**step_line(0))
        FrameFile(folder / frames.values_file(63)).frame(0, 0, [struct.pack("<H", bits)], 2)
        # when
        [value] = Journal(folder).values(0)["w"].view("uint32")
        # then
        signed = bits - 2**16 if bits >= 2**15 else bits
        [plain] = torch.tensor([signed], dtype=torch.int16).view(torch.bfloat16).float().numpy().view("uint32")
        assert value == plain


def test_an_absent_gradient_is_none(tmp_path: Path) -> None:
    write_journal(tmp_path, {"event": "tensors", "table": 0, "tensors": [entry("w", [1], "float32")]}, step_line(0))
    FrameFile(tmp_path / frames.DIGESTS).frame(0, 0, [b"\1" * RECORD_BYTES, ABSENT], 2 * RECORD_BYTES)
    [(step, digests)] = Journal(tmp_path).digests()
    assert step == 0 and digests.gradients == {"w": None} and not digests.values["w"].absent
