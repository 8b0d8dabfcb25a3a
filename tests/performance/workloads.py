"""What `scripts/bench investigate` measures: pairs of modes, how their bare scripts are started, and what is aimed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True, slots=True)
class Bare:
    """A mode's training without numdrift: arguments after the workload's own, and variables."""

    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


COMPILED = (Bare(), Bare(("--compile",)))


@dataclass(frozen=True, slots=True)
class Workload:
    """A pair of modes. The limits are of the investigation's seconds: `times_bare` those of its modes' bare scripts,
    `times_bisector` those of CompilerBisector on the same, `seconds` as they are. An `ordinary` workload has the limits of
    VERDICT and CAUSES, and the op of `ordinary` is its first cause."""

    name: str
    what: str
    script: str
    arguments: Sequence[str]
    modes: Sequence[str] = ("cpu", "compile")
    bare: Sequence[Bare] = COMPILED
    times_bare: float | None = None
    times_bisector: float | None = None
    seconds: float | None = None
    long: bool = False
    ordinary: str | None = None

    @property
    def compiles(self) -> bool:
        return any("compile" in mode for mode in self.modes)


VERDICT, CAUSES = (2.2, 20.0), (4.0, 60.0)
"""The seconds that the verdict and the whole investigation of an ordinary model may take: a multiple of the bare seconds,
and seconds on top of that."""

MEMORY_TIMES, DISK_TIMES = 3.0, 4.0
"""The peak of the memory of all processes, as a multiple of that of the bare script in the larger mode, and the disk space,
as a multiple of the training's state."""


def ordinary(model: str, what: str, steps: int) -> Workload:
    """One of the models of `ordinary_models`, compiled and with one activation that is too large, against eager mode."""
    return Workload(
        model,
        f"{what}, {steps} steps, cpu against compile with one activation that is 2 % too large",
        "tests/performance/ordinary_models.py",
        (model, "--steps", str(steps)),
        modes=("cpu", "faulty=compile,env.FAULT=scale"),
        bare=(Bare(), Bare(("--compile",), {"FAULT": "scale"})),
        ordinary="aten.mul (forward)",
    )


FAULT = "FAULT", "tanh_backward"

WORKLOADS = (
    Workload(
        "sam_tanh",
        "an MLP under SAM, 10 steps, cpu against compile",
        "reproducers/sam_tanh.py",
        ("--epochs", "10"),
        times_bare=4,
        times_bisector=0.5,
    ),
    Workload(
        "eager pair",
        "a small network, 20 steps, cpu against cpu with a kernel that the script defines",
        "tests/e2e/scripts/own_kernel.py",
        ("--steps", "20"),
        modes=("cpu", f"own=cpu,env.{FAULT[0]}={FAULT[1]}"),
        bare=(Bare(), Bare(variables=dict([FAULT]))),
        seconds=8,
    ),
    Workload(
        "char_gpt",
        "a character transformer of 0.8 million parameters, 30 steps, cpu against compile",
        "reproducers/char_gpt.py",
        ("--steps", "30"),
        times_bare=4,
    ),
    Workload(
        "resnet_digits",
        "a residual network on scikit-learn's digits, 30 steps, cpu against compile",
        "reproducers/resnet_digits.py",
        ("--steps", "30"),
        times_bare=4,
    ),
    Workload(
        "mnist",
        "the convolutional network of pytorch/examples' mnist on random images, 10 steps of 64 images, cpu against compile",
        "tests/performance/mnist.py",
        ("--images", "640"),
        times_bare=4,
    ),
    Workload(
        "long training",
        "10,000 steps of an MLP that take about 5 ms each, cpu against compile",
        "tests/performance/long_training.py",
        ("--steps", "10000"),
        times_bare=2.3,
        long=True,
    ),
    ordinary("resnet18", "a ResNet-18 (11 million parameters) on 16 images of 64 x 64", 10),
    ordinary("unet", "a U-Net (17 million parameters) on 4 images of 32 x 32", 10),
    ordinary("bert", "a tiny BERT (4.4 million parameters) on 16 x 64 words", 20),
    ordinary("diffusion", "a diffusion U-Net (8 million parameters) on 8 images of 32 x 32", 10),
    ordinary("glow", "a Glow of 24 steps (1 million parameters) on 8 images of 32 x 32", 10),
    ordinary(
        "transformer", "an encoder and decoder of torch.nn.Transformer (15 million parameters) on 20 x 35 words", 10
    ),
    ordinary("informer", "an Informer (2.8 million parameters, 19 graphs) on 16 series of 96 times", 10),
    ordinary("gpt2", "a GPT-2 small (124 million parameters) on 4 x 256 words", 5),
    Workload(
        "integrator",
        "an integrator of small calls, 100,000 in a step, 3 steps, cpu against cpu with one slope that is 2 % too large",
        "tests/performance/integrator.py",
        ("--calls", "100000"),
        modes=("cpu", "faulty=cpu,env.FAULT=scale"),
        bare=(Bare(), Bare(variables={"FAULT": "scale"})),
        ordinary="aten.mul (forward)",
    ),
)

TRAININGS_A_MODE = 2
"""Trainings of a mode at most, the confirming one left out."""

MOST_MEMORY = 7.54
"""GiB: what all processes together took at their peak when a step of DEEP was first localized, each shared page
counted once."""

DEEP = Workload(
    "12 layers",
    "a transformer of 12 layers, 512 wide (38 million parameters), 1,024 words a step, 2 steps, cpu against compile",
    "tests/e2e/scripts/deep_transformer.py",
    ("--width", "512", "--batch", "8", "--context", "128"),
    bare=(),
)
