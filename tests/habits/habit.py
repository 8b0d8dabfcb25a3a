"""One habit of training scripts, and what is expected of it in each mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
MODES = ("cpu", "compile", "lazy", "xla")


@dataclass(frozen=True, slots=True)
class Habit:
    """A habit, a script of `scripts/` that has it, and the expected behavior of that script.

    - `steps`: the steps that it trains; `losses`: the number of losses of each (one number if all have as many).
    - `script`: its path in `scripts/`, which is `name` with `.py` by default; `arguments`: its command line.
    - `module`: the module to start with `-m` instead of the script.
    - `not_in`: the modes in which it cannot run, each with a part of numdrift's message.
    - `cuda`: it asks for a GPU even on a machine without one; `reads_device`: it takes the device from DEVICE.
    - `compiles_model`: it compiles its model itself.
    - `on_cpu`: the modes whose run is compared with the bare run on the CPU, each with the reason.
    - `rounds`: further modes whose run differs from the bare one by rounding, each with the reason.
    - `exit_code`: its own exit code.
    """

    name: str
    title: str
    steps: int
    losses: int | tuple[int, ...] = 1
    script: str = ""
    arguments: tuple[str, ...] = ()
    module: str = ""
    not_in: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False
    reads_device: bool = False
    compiles_model: bool = False
    on_cpu: Mapping[str, str] = field(default_factory=dict)
    rounds: Mapping[str, str] = field(default_factory=dict)
    exit_code: int = 0

    def __post_init__(self) -> None:
        if not self.script:
            object.__setattr__(self, "script", f"{self.name}.py")

    @property
    def path(self) -> Path:
        return SCRIPTS / self.script

    @property
    def program(self) -> list[str]:
        """The words of a command line that name the script or module."""
        return ["-m", self.module] if self.module else [self.script]

    @property
    def losses_of_steps(self) -> tuple[int, ...]:
        """The number of losses of each step."""
        return (self.losses,) * self.steps if isinstance(self.losses, int) else self.losses

    def rounds_in(self, mode: str) -> bool:
        """Return whether a run in this mode differs from the bare one by rounding. XLA's kernels are not the CPU's."""
        return mode in self.rounds or (mode == "xla" and mode in self.on_cpu)

    def on(self, device: str) -> str:
        """Return the text of the script for a device, as its author would write it by hand."""
        text = self.path.read_text(encoding="utf-8")
        replaced = text.replace('"cuda:0"', '"cuda"').replace("torch.cuda.is_available()", "True")
        replaced = replaced.replace('torch.device("cuda", 0)', '"cuda"')
        for call in (".cuda()", ".cuda(non_blocking=True)"):
            replaced = replaced.replace(call, '.to("cuda")')
        if device == "lazy":  # which torch has no autocast for
            replaced = replaced.replace("autocast(device_type=device,", 'autocast(device_type="cpu",')
        return replaced.replace('"cuda"', f'"{device}"')
