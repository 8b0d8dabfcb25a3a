from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from numdrift.harness.backends.capturing import compiled_capture as compiled
from numdrift.harness.backends.compiled.mode import why_uncompiled
from numdrift.harness.errors import NotAvailable
from numdrift.harness.tape.recording.followed_calls import FollowedOps, OpCall
from numdrift.harness.torch_private.compiler import graph_kernels
from numdrift.harness.torch_private.compiler.compiling import compiled_frames, set_graph_caches, set_traced_rnn
from numdrift.harness.torch_private.profiling.compile_work import refusals
from numdrift.harness.torch_private.registered_kernels import OpaqueOps

from .capturing.test_compiled_capture import mlp_batch, seeded
from .compiled_models import Broken, TanhMlp, Uncapturable
from .compiled_training import capturing, read, train, train_captured


def one_batch(step: int) -> tuple[torch.Tensor, ...]:
    return (torch.ones(8, 4),)


@pytest.mark.parametrize(
    ("backend", "stages", "missing"),
    [
        ("eager", {"dynamo"}, {"pre", "post"}),
        ("aot_eager", {"dynamo", "pre"}, {"post"}),
        ("aot_eager_decomp_partition", {"dynamo", "pre"}, {"post"}),
    ],
)
def test_a_backend_has_the_stages_that_it_goes_through(
    backend: str, stages: set[str], missing: set[str], tmp_path: Path
) -> None:
    # when
    found = train_captured(tmp_path, seeded(TanhMlp), mlp_batch, backend=backend)
    # then
    assert {one["stage"] for one in found.of("graph")} == stages
    assert {one["stage"] for one in found.of("unavailable")} == missing
    assert all(f"backend {backend} " in one["reason"] for one in found.of("unavailable"))
    graphs = 1 if backend == "eager" else 2
    assert [one["executed"] for one in found.of("counters")] == [graphs, graphs]
    if backend != "eager":
        ops = [one.op for one in found.graphs["0-backward-pre"].nodes]
        assert ("tanh_backward" in ops) == (backend == "aot_eager")
    # and nothing of it changed a bit
    model = seeded(TanhMlp)
    torch.compiler.reset()
    assert all(map(torch.equal, train(model, mlp_batch, backend=backend), found.losses))


def test_a_graph_break_makes_two_graphs_and_says_why(tmp_path: Path) -> None:
    # when
    found = train_captured(tmp_path, seeded(Broken), one_batch, backend="aot_eager", steps=1)
    # then
    line = f"{Broken.forward.__code__.co_filename}:{Broken.forward.__code__.co_firstlineno + 2}"
    first, second = found.graphs["0-forward-dynamo"], found.graphs["0-forward-2-dynamo"]
    assert any(one.startswith("graph break: ") and "graph_break" in one and one.endswith(line) for one in first.notes)
    assert "dynamo graph 1 of step 0" in first.notes
    assert second.notes == ("dynamo graph 2 of step 0",)
    assert "parameter first.weight" in found.bindings("0-forward-pre")
    assert "parameter second.weight" in found.bindings("0-forward-2-pre")
    assert {one["name"] for one in found.of("graph") if one["phase"] == "backward"} == {
        "0-backward-pre",
        "0-backward-2-pre",
    }


def test_a_recompilation_is_a_graph_of_its_step(tmp_path: Path) -> None:
    # given a batch that grows in the third step
    def batch(step: int) -> tuple[torch.Tensor, ...]:
        return torch.zeros(4), torch.ones(8 if step < 2 else 6, 4)

    # when
    found = train_captured(tmp_path, seeded(TanhMlp), batch, backend="aot_eager", steps=4, dynamic=False)
    # then
    assert [one["name"] for one in found.of("graph") if one["stage"] == "pre"] == [
        "0-forward-pre",
        "0-backward-pre",
        "2-forward-pre",
        "2-backward-pre",
    ]
    assert found.graphs["0-forward-pre"].hash != found.graphs["2-forward-pre"].hash
    assert [(one["step"], one["compiled"]) for one in found.of("counters")] == [(0, 2), (1, 0), (2, 2)]
    assert {one["step"] for one in found.of("executed")} == {0, 1}


def test_a_model_that_dynamo_does_not_capture_has_a_reason(tmp_path: Path) -> None:
    # when
    found = train_captured(tmp_path, seeded(Uncapturable), one_batch, steps=2)
    # then
    assert not found.graphs
    assert [one["stage"] for one in found.of("unavailable")] == ["dynamo"]
    assert "dynamo captured no graph" in found.of("unavailable")[0]["reason"]


def test_a_script_that_compiles_by_itself_is_captured_by_the_same_names(tmp_path: Path) -> None:
    # given
    model = seeded(TanhMlp)
    own = torch.compile(model, backend="aot_eager")
    # when
    with capturing(tmp_path) as (capture, _):
        capture.adopted(own)  # type: ignore[arg-type]
        own(*mlp_batch(0)).sum().backward()
    # then
    found = read(tmp_path)
    expected = {
        "input 0",
        "input 1",
        "buffer scale",
        *(f"parameter {name}" for name, _ in model.named_parameters()),
    }
    assert set(found.bindings("0-forward-pre")) == expected
    # and without a module that was adopted, by dynamo's own sources
    with capturing(tmp_path / "again"):
        torch.compile(model, backend="aot_eager")(*mlp_batch(0)).sum().backward()
    assert set(read(tmp_path / "again").bindings("0-forward-pre")) == expected


def test_the_one_differentiable_number_is_the_loss(tmp_path: Path) -> None:
    # given
    layer = nn.Linear(4, 4)

    @torch.compile(backend="aot_eager")
    def loss_of(target: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = layer(x)
        return (y - target).square().mean(), y

    # when
    with capturing(tmp_path) as (capture, _):
        capture.adopted(layer)
        loss_of(torch.zeros(4), torch.ones(8, 4))[0].backward()
    # then
    found = read(tmp_path)
    forward = found.graphs["0-forward-pre"]
    assert [forward.values[one].binding for one in forward.outputs][:2] == ["loss", "output 1"]
    assert found.graphs["0-forward-dynamo"].inputs != ()
    assert set(found.bindings("0-forward-pre")) == {
        "parameter weight", "parameter bias", "input 0", "input 1",
    }  # fmt: skip


def test_ops_are_inside_only_while_a_graph_runs(tmp_path: Path) -> None:
    # given
    seen: list[tuple[str, bool]] = []

    def watch(call: OpCall, outputs: Any) -> None:
        seen.append((str(call.operation), capture.inside))

    model = seeded(TanhMlp)
    model.compile(backend="aot_eager")
    # when
    with capturing(tmp_path) as (capture, _), FollowedOps(lambda call: call, watch):
        result = model(*mlp_batch(0))
        (result.square().sum()).backward()
        assert not capture.inside
    # then
    inside = {name for name, within in seen if within}
    outside = {name for name, within in seen if not within}
    assert {"aten.addmm.default", "aten.tanh_backward.default"} <= inside
    assert "aten.pow.Tensor_Scalar" in outside
    assert not {"aten.addmm.default", "aten.tanh_backward.default"} & outside


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the reader is broken\nin two lines")


@pytest.mark.parametrize(
    ("name", "stage", "left"),
    [("read_graph", "dynamo", set()), ("signature_of", "dynamo", set()), ("AotBindings", "pre", {"dynamo"})],
)
def test_a_failing_capture_is_told_once_and_the_training_goes_on(
    name: str, stage: str, left: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    monkeypatch.setattr(compiled, name, broken)
    # when
    found = train_captured(tmp_path, seeded(TanhMlp), mlp_batch, backend="aot_eager")
    # then
    assert len(found.losses) == 2
    assert {one["stage"] for one in found.of("graph")} == left
    reasons = [one["reason"] for one in found.of("unavailable") if one["stage"] == stage]
    assert reasons == [f"not available on torch {torch.__version__}: RuntimeError: the reader is broken"]


@pytest.mark.parametrize(
    ("hook", "backend", "stage", "left"),
    [
        ("watch_dynamo", "aot_eager", "dynamo", set()),
        ("watch_aot", "aot_eager", "pre", {"dynamo"}),
        ("number_decomposed_calls", "aot_eager", "pre", {"dynamo", "pre"}),
        ("watch_kernels", "inductor", "post", {"dynamo", "pre"}),
        ("watch_executions", "inductor", "executions", {"dynamo", "pre", "post"}),
    ],
)
def test_a_missing_hook_takes_only_its_own_stage(
    hook: str,
    backend: str,
    stage: str,
    left: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given
    def missing(*_: Any) -> Any:
        raise NotAvailable("torch._nothing", "torch 0.0 does not have it")

    monkeypatch.setattr(compiled, hook, missing)
    # when
    found = train_captured(tmp_path, seeded(TanhMlp), mlp_batch, backend=backend, steps=1)
    # then
    assert {one["stage"] for one in found.of("graph")} == left
    assert any(
        "torch 0.0 does not have it" in one["reason"] for one in found.of("unavailable") if one["stage"] == stage
    )


def test_kernels_that_cannot_be_read_leave_the_other_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(graph_kernels, "_lowered", broken)
    # when
    found = train_captured(tmp_path, seeded(TanhMlp), mlp_batch, steps=1)
    # then
    assert {one["stage"] for one in found.of("graph")} == {"dynamo", "pre"}
    assert [(one["stage"], "the reader is broken" in one["reason"]) for one in found.of("unavailable")] == [
        ("post", True)
    ]


def test_an_op_of_numdrift_stays_one_node(tmp_path: Path) -> None:
    # given what a swap puts in the place of a decomposition
    ops = OpaqueOps()
    schema = "(int place, Tensor grad_output, Tensor output) -> Tensor"
    ops.define(
        "tanh_backward_of_a_test",
        schema,
        lambda place, grad_output, output: grad_output * output,
        lambda place, grad_output, output: torch.empty_like(grad_output),
    )

    @torch.compile(fullgraph=True)
    def call(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.numdrift.tanh_backward_of_a_test(7, x + 1, x)
        return result * 2

    # when
    try:
        with capturing(tmp_path):
            call(torch.ones(4))
    finally:
        ops.close()
    # then
    found = read(tmp_path)
    for stage in ("pre", "post"):
        nodes = {one.op: one for one in found.graphs[f"0-forward-{stage}"].nodes}
        node = nodes["tanh_backward_of_a_test"]
        assert node.domain == "numdrift"
        assert node.attributes == {"place": 7}
        assert len(node.inputs) == 2
    assert found.graphs["0-forward-pre"].phase == "forward"


def test_what_is_removed_leaves_torch_as_it_was(tmp_path: Path) -> None:
    # given
    def state() -> list[Any]:
        import torch._dynamo.backends.common as aot
        import torch._functorch.config as functorch
        import torch._inductor.compile_fx as inductor
        from torch._dynamo.output_graph import OutputGraph
        from torch._inductor import config
        from torch._inductor.graph import GraphLowering
        from torch._inductor.output_code import CompiledFxGraph
        from torch.fx import proxy
        from torch.fx.experimental import proxy_tensor

        return [
            OutputGraph._call_user_compiler, vars(aot)["aot_module_simplified"], inductor._compile_fx_inner,
            GraphLowering.codegen, CompiledFxGraph.__call__, proxy_tensor.set_original_aten_op,
            list(proxy._COPY_META_FIELDS), config.fx_graph_cache, functorch.enable_autograd_cache,
        ]  # fmt: skip

    before = state()
    # when
    with capturing(tmp_path):
        during = state()
    # then
    assert state() == before
    assert all(one != other for one, other in zip(during[:7], before[:7], strict=True))


def test_no_graph_comes_from_a_cache_if_the_mode_says_so() -> None:
    import torch._functorch.config as aot
    import torch._inductor.config as inductor

    with aot.patch(enable_autograd_cache=True), inductor.patch(fx_graph_cache=True):
        set_graph_caches(False)
        assert (aot.enable_autograd_cache, inductor.fx_graph_cache) == (False, False)
        set_graph_caches(True)
        assert (aot.enable_autograd_cache, inductor.fx_graph_cache) == (True, True)


def test_dynamo_traces_a_recurrent_module_if_the_mode_says_so() -> None:
    model, batch = nn.RNN(2, 2), torch.ones(1, 1, 2)
    config = torch._dynamo.config
    before = config.allow_rnn

    def frames() -> int:
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        torch.compile(model, backend="eager")(batch)
        return compiled_frames()

    try:
        assert frames() == 0
        assert "allow_rnn=on" in why_uncompiled(refusals()) and "RNN" in why_uncompiled(refusals())
        set_traced_rnn(True)
        assert frames() == 1
    finally:
        config.allow_rnn = before
        torch.compiler.reset()


def test_another_reason_for_eager_mode_names_no_key() -> None:
    assert "allow_rnn" not in why_uncompiled(["Unsupported: a reason"]) and "(Unsupported" in why_uncompiled(
        ["Unsupported: a reason"]
    )
    assert why_uncompiled([]).endswith("call the model itself (model(x)), not its parts")


def test_a_break_in_a_loop_is_one_reason() -> None:
    def broken(values: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            values = values + values.sum().item()
        return values

    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    torch.compile(broken, backend="eager")(torch.ones(2))
    (reason,) = refusals()
    assert "item()" in reason and "loop" in reason and ".: " not in reason
    torch.compiler.reset()
