from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from numdrift.harness.backends.eager.adapter import EagerAdapter
from numdrift.harness.errors import NotAvailable
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.adoption_facts import AdoptionFacts
from numdrift.harness.script.adopted.autocast import AutocastRedirection
from numdrift.harness.script.adopted.cuda import CudaStandIns
from numdrift.harness.script.adopted.devices import DeviceRedirection
from numdrift.harness.script.understood import ScriptNotes
from numdrift.harness.torch_private.accelerators import device_meant

Facts = list[dict[str, Any]]

pytestmark = pytest.mark.skipif(torch.backends.cuda.is_built(), reason="asks what happens without CUDA")


@pytest.fixture
def facts() -> Iterator[Facts]:
    """Everything redirected to the CPU; gives what was noted."""
    told: Facts = []
    notes = ScriptNotes(AdoptionFacts(lambda event, **fields: told.append({"event": event, **fields})), __file__)
    devices = DeviceRedirection("cpu", notes)
    parts = (devices, CudaStandIns("cpu", notes), AutocastRedirection("cpu", devices.kinds, notes))
    for part in parts:
        part.install()
    yield told
    for part in reversed(parts):
        part.close()


def texts(facts: Facts) -> list[str]:
    return [fact["text"] for fact in facts]


def linear(device: Any) -> torch.Tensor:
    return torch.nn.Linear(3, 4, device=device).weight


def moved(device: Any) -> torch.Tensor:
    return torch.nn.Linear(3, 4).to(device).weight


def within_default(device: Any) -> torch.Tensor:
    with torch.device(device):
        return torch.randn(3) + torch.tensor([1.0, 2.0, 3.0])


def as_default(device: Any) -> torch.Tensor:
    torch.set_default_device(device)
    try:
        return torch.rand(3)
    finally:
        torch.set_default_device(None)


MAKERS: dict[str, Callable[[Any], torch.Tensor]] = {
    "zeros": lambda device: torch.zeros(2, 3, device=device),
    "full-in-double": lambda device: torch.full((2,), 7.5, device=device, dtype=torch.float64),
    "arange": lambda device: torch.arange(5, device=device),
    "randn": lambda device: torch.randn(3, device=device),
    "randint": lambda device: torch.randint(0, 9, (3,), device=device),
    "randperm": lambda device: torch.randperm(9, device=device),
    "normal": lambda device: torch.normal(0.0, 1.0, (3,), device=device),
    "tensor": lambda device: torch.tensor([1.0, 2.0], device=device),
    "as_tensor": lambda device: torch.as_tensor([1.0, 2.0], device=device),
    "eye": lambda device: torch.eye(3, device=device),
    "tril_indices": lambda device: torch.tril_indices(3, 3, device=device),
    "hann_window": lambda device: torch.hann_window(4, device=device),
    "rand_like": lambda device: torch.rand_like(torch.ones(3), device=device),
    "new_zeros": lambda device: torch.ones(3).new_zeros(2, device=device),
    "to": lambda device: torch.ones(3).to(device),
    "to-in-half": lambda device: torch.ones(3).to(device, torch.float16),
    "channels-last": lambda device: torch.ones(1, 2, 3, 3).to(device, memory_format=torch.channels_last),
    "linear": linear,
    "module-to": moved,
    "generator": lambda device: torch.randn(3, device=device, generator=torch.Generator(device=device).manual_seed(5)),
    "default-within": within_default,
    "default": as_default,
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), "xpu"], ids=str)
def test_what_is_made_for_an_accelerator_is_what_the_cpu_makes(name: str, device: Any, facts: Facts) -> None:
    # given
    torch.manual_seed(3)
    expected = MAKERS[name]("cpu").detach()
    # when
    torch.manual_seed(3)
    made = MAKERS[name](device).detach()
    # then
    assert made.device == torch.device("cpu")
    assert made.dtype == expected.dtype
    assert made.stride() == expected.stride()
    assert torch.equal(made, expected)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.cuda(),
        lambda x: x.cuda(0, non_blocking=True),
        lambda x: x.to(0),
        lambda x: x.to(device=1),
        lambda x: x.pin_memory(),
        lambda x: x.type("torch.cuda.FloatTensor"),
        lambda x: x.type(vars(torch.cuda)["FloatTensor"]),
    ],
    ids=["cuda", "cuda-0", "to-0", "to-device-1", "pin_memory", "type-by-name", "type"],
)
def test_a_tensor_that_moves_to_an_accelerator_keeps_its_value(
    move: Callable[[torch.Tensor], torch.Tensor], facts: Facts
) -> None:
    x = torch.randn(4)
    assert torch.equal(move(x), x)


def test_modules_move_with_their_parameters_as_they_are(facts: Facts) -> None:
    model = torch.nn.Linear(2, 2)
    weight = model.weight
    assert model.cuda() is model
    assert model.to(0) is model
    assert model.weight is weight


def test_each_kind_of_redirection_is_noted_once_with_its_line(facts: Facts) -> None:
    # when
    torch.zeros(1, device="cuda")
    torch.ones(1).cuda()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    # then
    by_text = {fact["text"]: fact["source"] for fact in facts}
    assert texts(facts).count("cuda is cpu in this mode") == 1
    assert set(by_text) == {
        "cuda is cpu in this mode",
        "the mode has no CUDA device: stand-ins answer the script's calls to torch.cuda",
    }
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    for text, call in zip(by_text, ("torch.zeros(1", "torch.cuda.synchronize()"), strict=True):
        path, _, line = by_text[text].rpartition(":")
        assert path == __file__
        assert call in lines[int(line) - 1]


def test_torch_is_as_before_when_the_redirection_ends() -> None:
    # given
    names = [(torch.Tensor, "to"), (torch, "Generator"), (torch.cuda, "Event"), (torch.cuda, "synchronize")]
    before = [getattr(holder, name) for holder, name in names]
    notes = ScriptNotes(AdoptionFacts(lambda *_, **__: None), __file__)
    parts = (DeviceRedirection("cpu", notes), CudaStandIns("cpu", notes))
    # when
    for part in parts:
        part.install()
    for part in reversed(parts):
        part.close()
    # then
    assert [getattr(holder, name) for holder, name in names] == before
    with pytest.raises((RuntimeError, AssertionError)):
        torch.ones(1).to("cuda")
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1, device="cuda:0")


def test_the_truth_about_the_machine_is_told(facts: Facts) -> None:
    torch.zeros(1, device="cuda")
    assert not torch.cuda.is_available()
    assert torch.cuda.device_count() == 0
    assert not torch.zeros(1, device="cuda").is_cuda


def test_torch_itself_goes_on_finding_no_device(facts: Facts) -> None:
    # Inductor's cache key is made of the device's properties, or of the failure to get them.
    cache = pytest.importorskip("torch._inductor.codecache").CacheBase
    assert "device" not in cache.get_system()


def test_other_devices_stay_what_they_are(facts: Facts) -> None:
    assert torch.zeros(1, device="meta").is_meta
    assert torch.ones(1).to("meta").is_meta
    assert not texts(facts)


def test_events_and_streams_measure_and_wait(facts: Facts) -> None:
    # given
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream()
    # when
    begin.record()
    with torch.cuda.stream(stream), torch.cuda.device(0):
        x = torch.ones(3)
        x.record_stream(stream)
    torch.cuda.current_stream().wait_stream(stream)
    end.record()
    torch.cuda.synchronize()
    # then
    assert begin.elapsed_time(end) > 0
    assert end.query()


def test_the_states_of_the_generator_that_draws_are_read_and_written(facts: Facts) -> None:
    state = torch.cuda.get_rng_state()
    drawn = torch.randn(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.randn(3, device="cuda"), drawn)


def test_seeding_the_accelerator_seeds_nothing_else(facts: Facts) -> None:
    torch.manual_seed(1)
    expected = torch.randn(3)
    torch.manual_seed(1)
    torch.cuda.manual_seed(2)
    torch.cuda.manual_seed_all(2)
    assert torch.equal(torch.randn(3), expected)


def saved_on_cuda(value: Any) -> bytes:
    """A checkpoint as a machine with CUDA writes it."""
    file = io.BytesIO()

    def tag(storage: Any) -> str:
        return "cuda:0"

    torch.serialization.register_package(0, tag, lambda storage, location: None)
    try:
        torch.save(value, file)
    finally:
        known = torch.serialization._package_registry
        known[:] = [one for one in known if one[1] is not tag]
    return file.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"map_location": "cuda"},
        {"map_location": torch.device("cuda:0")},
        {"map_location": {"cuda:0": "cuda:1"}},
        {"map_location": lambda storage, location: storage.cuda(0)},
    ],
    ids=["as-it-was", "name", "device", "table", "function"],
)
def test_a_checkpoint_of_cuda_is_loaded(arguments: dict[str, Any], facts: Facts) -> None:
    weight = torch.randn(3)
    loaded = torch.load(io.BytesIO(saved_on_cuda({"weight": weight})), **arguments)
    assert torch.equal(loaded["weight"], weight)


def test_a_checkpoint_of_cuda_is_refused_without_redirection() -> None:
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(io.BytesIO(saved_on_cuda({"weight": torch.ones(1)})))


@pytest.mark.parametrize(
    ("context", "dtype"),
    [
        (lambda: torch.autocast("cuda"), torch.float16),
        (lambda: torch.autocast("cuda", dtype=torch.bfloat16), torch.bfloat16),
        (lambda: torch.amp.autocast("cuda", torch.bfloat16), torch.bfloat16),
        (lambda: torch.autocast("cuda", enabled=False), torch.float32),
        (lambda: torch.autocast("cpu"), torch.bfloat16),
    ],
    ids=["float16-unless-stated", "bfloat16", "amp", "disabled", "cpu"],
)
def test_autocast_keeps_its_dtype(context: Callable[[], Any], dtype: torch.dtype, facts: Facts) -> None:
    x = torch.randn(2, 2)
    with context():
        assert (x @ x).dtype == dtype


def test_autocast_for_cuda_is_bitwise_that_of_the_cpu(facts: Facts) -> None:
    x = torch.randn(5, 7)
    with torch.autocast("cpu", dtype=torch.float16):
        expected = torch.nn.functional.softmax(x @ x.T, 0)
    with torch.autocast("cuda"):
        found = torch.nn.functional.softmax(x @ x.T, 0)
    assert torch.equal(found, expected)


class Doubling(torch.autograd.Function):
    """Says in its backward what autocast it is in."""

    seen: torch.dtype | None = None

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Doubling.seen = (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
        return gradient * 2


def test_a_function_for_autocast_goes_backward_in_the_autocast_of_its_forward(facts: Facts) -> None:
    # given
    function: Any = type(
        "Decorated",
        (Doubling,),
        {
            "forward": staticmethod(torch.amp.custom_fwd(Doubling.forward, device_type="cuda")),
            "backward": staticmethod(torch.amp.custom_bwd(Doubling.backward, device_type="cuda")),
        },
    )
    x = torch.ones(2, requires_grad=True)
    # when
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = function.apply(x).sum()
    loss.backward()
    # then
    assert Doubling.seen == torch.bfloat16


def test_the_scaler_scales_as_on_the_cpu(facts: Facts) -> None:
    def trained(device: str) -> tuple[bool, torch.Tensor]:
        weight = torch.nn.Parameter(torch.arange(3.0))
        optimizer = torch.optim.SGD([weight], 0.1)
        scaler = torch.amp.GradScaler(device)
        scaler.scale((weight**2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.is_enabled(), weight.detach()

    enabled, found = trained("cuda")
    assert enabled
    assert torch.equal(found, trained("cpu")[1])


class Sent(torch.nn.Module):
    """Sends what it computes to a device in every way that a forward does."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.full((3,), 0.5, device=self.device)
        count = torch.arange(3, device=torch.device(self.device))
        made = torch.tensor([1.0, 2.0, 3.0], device=self.device)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            inner = self.inner(x.to(self.device))
        out: torch.Tensor = (inner + noise + count + made).to(device=self.device).tanh()
        return out


def test_what_is_compiled_sends_to_the_modes_device(facts: Facts) -> None:
    # given
    devices = DeviceRedirection("cpu", ScriptNotes(AdoptionFacts(lambda *_, **__: None), __file__))
    devices.redirect_traced()
    x = torch.randn(2, 3)
    torch.manual_seed(0)
    expected = Sent("cpu")(x)
    torch.manual_seed(0)
    model = Sent("cuda")
    model.compile(backend="aot_eager", fullgraph=True)
    # when
    found = model(x)
    found.sum().backward()
    devices.close()
    # then
    assert torch.equal(found, expected)
    assert model.inner.weight.grad is not None


def test_tapes_are_told_the_device_that_was_meant(facts: Facts) -> None:
    assert device_meant(torch.device("cuda:1")) == torch.device("cpu")
    assert device_meant(torch.device("meta")) == torch.device("meta")


class Subclass(torch.Tensor):
    """Lists the functions that it is asked for."""

    asked: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_a_tensor_subclass_is_asked_for_the_method_that_it_finds_on_torch(facts: Facts) -> None:
    x = torch.ones(2).as_subclass(Subclass)
    Subclass.asked.clear()
    assert x.to(torch.float64).dtype == torch.float64
    assert torch.Tensor.to in Subclass.asked


@pytest.mark.usefixtures("facts")
def test_nothing_is_partitioned_onto_what_stands_for_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a machine that has one
    monkeypatch.setattr("numdrift.harness.backends.eager.adapter.require_device", lambda device: None)
    graph = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    with pytest.raises(NotAvailable, match=r"which replaces that device.*FILE\.py:FACTORY"):
        EagerAdapter(parse_mode("cuda")).compile_graph(graph, [])
