"""One habit of training scripts, and what is to be expected of it in each mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
MODES = ("cpu", "compile", "lazy", "xla")


@dataclass(frozen=True, slots=True)
class Habit:
    """A script of `scripts/` and how it is started there, `arguments` behind it.

    `steps` are the steps that it trains, `losses` the number of losses of each (one number where all have as many).
    `not_in` gives, of the modes in which it cannot run, the reason in one line, as a part of what numdrift says.
    `cuda`: it asks for a GPU whatever the machine has; `reads_device`: it takes the device from DEVICE.
    `compiles_model`: it compiles its model by itself. `lazy_as_cpu` says why its lazy run can only be compared with the
    bare one on the CPU, and `lazy_rounds` why not even that, bit for bit; `xla_rounds` why its run in xla differs by
    rounding from the bare one (which is that on the CPU where `lazy_as_cpu` is said, too). `module`: it is started as
    `-m module`.
    `exit_code` is its own. `printed` is what stands before a loss that it prints.
    """

    script: str
    title: str
    steps: int
    losses: int | tuple[int, ...] = 1
    arguments: tuple[str, ...] = ()
    not_in: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False
    reads_device: bool = False
    compiles_model: bool = False
    lazy_as_cpu: str = ""
    lazy_rounds: str = ""
    xla_rounds: str = ""
    module: str = ""
    exit_code: int = 0
    printed: str = "loss"

    @property
    def name(self) -> str:
        return self.script.removesuffix(".py")

    @property
    def path(self) -> Path:
        return SCRIPTS / self.script

    @property
    def losses_of_steps(self) -> tuple[int, ...]:
        """How many losses each step has."""
        return (self.losses,) * self.steps if isinstance(self.losses, int) else self.losses

    def on(self, device: str) -> str:
        """The text of the script for a device, written by hand as its author would."""
        text = self.path.read_text(encoding="utf-8")
        replaced = text.replace('"cuda:0"', '"cuda"').replace("torch.cuda.is_available()", "True")
        replaced = replaced.replace('torch.device("cuda", 0)', '"cuda"')
        for call in (".cuda()", ".cuda(non_blocking=True)"):
            replaced = replaced.replace(call, '.to("cuda")')
        if device == "lazy":  # which torch has no autocast for
            replaced = replaced.replace("autocast(device_type=device,", 'autocast(device_type="cpu",')
        return replaced.replace('"cuda"', f'"{device}"')
