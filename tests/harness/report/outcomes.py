"""A pair of findings for every outcome that an investigation may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numdrift.harness.records.results.culprit import (
    ARGUMENTS,
    COMPILER_STAGE,
    KERNEL,
    LAYOUT,
    SETTING,
    STRUCTURE,
    WEIGHTS,
    Culprit,
    CulpritScript,
    CulpritSetting,
    Proof,
    SwappedIn,
    SwappedOut,
)
from numdrift.harness.records.results.culprit_detail import CALLS, CulpritDetail, ErrorsOverInputs, ExecutedSide
from numdrift.harness.records.results.findings import (
    GENERATORS,
    HASH,
    Findings,
    PairFindings,
    PinnedInput,
    RunEnding,
    StepFindings,
    StepKind,
    TensorScore,
    TrainedWithout,
)
from numdrift.harness.records.run.interpreters import MODE, VERSION, VERSION_OR_MODE, TwoInterpreters

PROOF = Proof(SwappedIn(True, 0.0, 2.1), SwappedOut(True, 2.3, 0.1, 0.0))


def cause(**given: Any) -> Culprit:
    known: dict[str, Any] = {
        "kind": KERNEL, "status": "culprit", "phase": "backward", "op": "aten.tanh_backward", "step": 6,
        "source": "/home/somebody/train.py:31", "places": ("layers.1", "layers.3"), "significance": "rounding",
        "error_ulp": {"a": 0.94, "b": 312.0}, "rho": {"a": 0.4, "b": 1.1}, "share_of_drift": 1.0, "proof": PROOF,
        "ops": {"a": ("tanh_backward",), "b": ("mul", "sub", "mul")},
    }  # fmt: skip
    return Culprit(**{**known, **given})


STEPS = (
    StepFindings(
        0, 0.8, "gradient 0 layers.1.weight", True, compared=9,
        tensors=(TensorScore("gradient 0 layers.1.weight", 0.8), TensorScore("loss 0", 0.0)),
    ),
    StepFindings(
        6, 2.33, "state layers.3.bias.exp_avg", True, compared=9,
        tensors=(
            TensorScore("state layers.3.bias.exp_avg", 2.33),
            TensorScore("gradient 0 layers.1.weight", 1.5),
            TensorScore("parameter layers.10.weight", 0.2),
        ),
    ),
)  # fmt: skip

ROUNDING = PairFindings(
    "cpu", "compile", "rounding",
    text=("rounding: the largest drift of 2 steps is 2.33 times the reference's own rounding noise",),
    first_differing_step=0, score=2.33, threshold=21.1, calibrated=True, closer_to_fp64="cpu",
    culprits=(cause(),), explained=1.0, steps=STEPS, referee={"closer": "cpu"},
)  # fmt: skip

FAULT = replace(
    ROUNDING, b="lazy", verdict="beyond-rounding", score=910.0, first_significant_step=6,
    text=("beyond-rounding: the largest drift of 2 steps is 910 times the reference's own rounding noise",),
)  # fmt: skip

VERSIONS = {"a": "2.13.0+cpu", "b": "2.9.0+cu128"}
SAME_MODE = TwoInterpreters(VERSIONS, ("torch 2.13.0+cpu against 2.9.0+cu128", "oneDNN 3.12.0 against 3.7.1"), VERSION)
OTHER_MODE = replace(
    SAME_MODE, blame=VERSION_OR_MODE,
    command="numdrift investigate train.py --mode cpu,python=.venv-xla/bin/python --mode xla,python=.venv-xla/bin/python",
)  # fmt: skip

OUTCOMES: Mapping[str, PairFindings] = {
    "equal bits": PairFindings("cpu", "lazy", "identical", ("identical: everything that cpu and lazy recorded has the same bits",)),
    "equal bits, of a script that depends on what numdrift sets": PairFindings(
        "cpu", "lazy", "identical", ("identical: everything that cpu and lazy recorded has the same bits",),
        pinned=(PinnedInput(HASH), PinnedInput(GENERATORS, ("torch", "numpy"))),
    ),
    "rounding, its ops known": ROUNDING,
    "rounding, its ops not known": replace(ROUNDING, culprits=(), explained=None, unexplained="no op was looked for"),
    "a lot for rounding": replace(ROUNDING, score=17.3, inspect=True, explained=0.63),
    "rounding, and kinds of steps that were not compared": replace(
        ROUNDING,
        kinds=(
            StepKind("batch", "with a batch of 5x8 (float32)", steps=1, first=29),
            StepKind("batch", "with a batch of 64x8 (float32)", steps=29, first=0, compared=15),
        ),
    ),
    "a different memory layout": replace(
        ROUNDING, culprits=(cause(kind=LAYOUT, op="aten.convolution", error_ulp={"a": 1.0, "b": 1.1}),)
    ),
    "a kernel that is wrong": replace(FAULT, culprits=(cause(significance="beyond-rounding", swapped="kernel.tanh_backward=aten"),)),
    "a reference that is wrong": replace(
        FAULT, closer_to_fp64="lazy",
        culprits=(cause(significance="beyond-rounding", error_ulp={"a": 9e4, "b": 0.9}),),
    ),
    "an op receives different arguments": replace(
        FAULT, culprits=(cause(kind=ARGUMENTS, op="aten.native_layer_norm", reasons=("eps: 1e-05 against 0.001",),
                               significance="beyond-rounding"), cause()),
    ),
    "an op is left out": replace(
        FAULT, culprits=(cause(kind=STRUCTURE, op="aten.mul", ops={"a": ("mul",), "b": ()}, significance="beyond-rounding"),)
    ),
    "an additional op is executed": replace(
        FAULT, culprits=(cause(kind=STRUCTURE, op="aten._to_copy", ops={"a": (), "b": ("_to_copy",)}, places=(),
                               significance="beyond-rounding"),)
    ),
    "a setting whose effect is rounding": replace(
        ROUNDING, b="plain", culprits=(
            cause(kind=SETTING, op="aten.convolution", source="/home/somebody/train.py:9", swapped="mkldnn=on",
                  reasons=("both calls of convolution differ because mkldnn is off (train.py:9), on in cpu",),
                  setting=CulpritSetting("mkldnn", "both calls of convolution differ", {"a": "on", "b": "off"},
                                         {"b": "/home/somebody/train.py:9"})),
        ),
    ),
    "a setting that rounds more": replace(
        FAULT, b="fast", culprits=(
            cause(kind=SETTING, op="aten.mm", significance="beyond-rounding", swapped="tf32=convolutions",
                  reasons=("all 72 matrix products differ because tf32 is on (set by the mode), convolutions in cuda",),
                  setting=CulpritSetting("tf32", "all 72 matrix products differ", {"a": "convolutions", "b": "on"})),
        ),
    ),
    "a setting that acts on one device": replace(
        FAULT, b="cuda", culprits=(
            cause(kind=SETTING, op="aten.convolution", significance="beyond-rounding", swapped="tf32=off",
                  reasons=("all 4 calls of convolution differ by more than rounding because tf32 is convolutions",),
                  setting=CulpritSetting("tf32", "all 4 calls of convolution differ by more than rounding",
                                         {"b": "convolutions"})),
        ),
    ),
    "a setting whose ops are not known": replace(
        FAULT, b="cuda", culprits=(
            cause(kind=SETTING, op=None, name="the setting sdpa", source=None, places=(), ops={"a": (), "b": ()},
                  error_ulp={}, significance="beyond-rounding", swapped="sdpa=math",
                  reasons=("sdpa=math removes the drift",)),
        ),
    ),
    "a stage of torch.compile": replace(
        FAULT, b="compile", culprits=(
            cause(kind=COMPILER_STAGE, op=None, name="torch.compile's stage inductor", source=None, places=(),
                  ops={"a": (), "b": ()}, error_ulp={}, significance="beyond-rounding"),
        ),
    ),
    "a batch whose parts are weighted differently": replace(
        FAULT, b="parts", culprits=(
            cause(kind=WEIGHTS, op=None, name="the weighting of the losses", places=(), ops={"a": (), "b": ()},
                  error_ulp={}, significance="beyond-rounding"),
        ),
    ),
    "a fault that is there without its cause, too": replace(
        FAULT, culprits=(cause(significance="beyond-rounding"),),
        without=TrainedWithout(inside=False, text="trained to the end with kernel.tanh_backward=aten, b leaves the envelope"),
    ),
    "a fault without a proven cause": replace(FAULT, culprits=(), explained=None, unexplained="the step has no tape"),
    "drift that no rounding can cause": replace(FAULT, score=float("inf"), culprits=(cause(significance="beyond-rounding"),)),
    "a different set-up": PairFindings(
        "cpu", "b", "different-setup", ("different-setup: lr 0.001 against 0.0011 (Adam, group 0, from step 0)",)
    ),
    "a mode that does not repeat": PairFindings(
        "cpu", "b", "nondeterministic", ("nondeterministic: b does not repeat: loss 0 of step 5 differs",)
    ),
    "NaN or infinity": PairFindings("cpu", "b", "nonfinite", ("nonfinite: step 7: loss 0 contains NaN only in b",), culprits=(cause(),)),
    "NaN that comes with a setting": PairFindings(
        "math", "any", "nonfinite", ("nonfinite: step 0: the gradient of `q.weight` contains NaN only in any",), culprits=(
            cause(kind=SETTING, op=None, name="sdpa", places=(), ops={"a": (), "b": ()}, error_ulp={}, swapped="sdpa=math",
                  setting=CulpritSetting("sdpa", "the attention differs", {"a": "math", "b": "any"})),
        ),
    ),
    "not decided": PairFindings(
        "cpu", "b", None, ("undecided: the runs differ from step 3 on",),
        undecided="the runs differ from step 3 on, and no step was scored: run `numdrift investigate runs/train`",
    ),
    "equal bits, two versions of torch": PairFindings(
        "new", "old", "identical", ("identical: everything that new and old recorded has the same bits",), interpreters=SAME_MODE,
    ),
    "rounding, and without its causes a curve of its own": replace(
        ROUNDING, without=TrainedWithout(inside=False, text="compile without its culprits leaves the envelope at step 1")
    ),
    "rounding, one mode in two versions": replace(
        ROUNDING, a="new", b="old", interpreters=SAME_MODE,
        culprits=(cause(op="aten.native_group_norm", error_ulp={"a": 1.0, "b": 1.0}, torch=VERSIONS, blame=VERSION),),
    ),
    "rounding, two modes in two versions": replace(ROUNDING, b="xla", culprits=(), explained=None, interpreters=OTHER_MODE),
    "rounding, two versions and a whole run": replace(
        ROUNDING, interpreters=replace(OTHER_MODE, blame=MODE, command=""), without=TrainedWithout(identical=True),
        culprits=(cause(torch=VERSIONS, blame=MODE),),
    ),
    "a fault, two modes in two versions": replace(
        FAULT, b="xla", interpreters=OTHER_MODE,
        culprits=(cause(significance="beyond-rounding", torch=VERSIONS, blame=VERSION_OR_MODE),),
    ),
    "a run that failed": PairFindings("cpu", "lazy", "failed", ("failed: lazy crashed after 0 steps: RuntimeError: no",)),
}  # fmt: skip

SCRIPT = CulpritScript(
    "runs/train/evidence/lazy-localized-cpu-000006/culprit-1.py", reproduces=True, output="12 differ"
)

CODE = 'print("""```""")  # shows it'

ERRORS = ErrorsOverInputs(
    "result", {"a": "float32", "b": "float32"}, 640, {"a": 0, "b": 0}, {"a": 1.42, "b": 40.8},
    inputs={"output": [0.5, -0.9, 0.99, 0.1, -0.2], "grad_output": [1e-5, 2e-5, -3e-5, 4e-5, 5e-5]},
    exact=[7.5e-6, 3.8e-6, -5.97e-7, 3.96e-5, 4.8e-5],
    errors={"a": [0.2, -0.4, 1.42, 0.0, -0.3], "b": [0.7, -6.25, 40.8, 0.1, -0.9]},
)  # fmt: skip

DETAILED = CulpritDetail(
    {
        "a": ExecutedSide(
            CALLS, ("grad_output", "output"),
            ("t1 = torch.ops.aten.tanh_backward.default(grad_output, output)", "return [t1]"),
            ("tanh_backward(grad_output, output)",),
        ),
        "b": ExecutedSide(
            CALLS, ("output", "grad_output"),
            (
                "t1 = torch.ops.aten.mul.Tensor(output, output)", "t2 = torch.ops.aten.sub.Tensor(1, t1)",
                "t3 = torch.ops.aten.mul.Tensor(grad_output, t2)", "return [t3]",
            ),
            ("grad_output * (1 - output * output)",),
        ),
    },
    ERRORS,
)  # fmt: skip


def made(folder: Path, pair: PairFindings) -> Path:
    runs = {name: RunEnding("complete", 5, 0.1, "", f"{name}=cpu", name) for name in ("base", "other")}
    Findings("train.py", "base", runs, [replace(pair, a="base", b="other")], 2, 0, 10, 1.5).write(folder)
    return folder
