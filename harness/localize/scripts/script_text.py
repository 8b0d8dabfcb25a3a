"""The text of a standalone script: plain torch that shows how two sides differ in one block."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...records.modes.mode_registry import registry
from ...tape.files.tensor_file import CODES
from ..align.storage_flow import SIDES, Side
from .localized_values import NotShown, Values
from .script_calls import SideCode, literal

MOST_LINES = 60
MOST_BYTES = 64_000
LONGEST_SENTENCE = 300

INPUT_PREFIX = "given_"
"""The prefix of the names of recorded results, which the script does not compute."""

LOAD = """\
def load(path):
    raw = bytearray(open(path, "rb").read())
    begin = 8 + int.from_bytes(raw[:8], "little")
    data, header = torch.frombuffer(raw, dtype=torch.uint8)[begin:], json.loads(raw[8:begin])
    parts = {name: (info, data[slice(*info["data_offsets"])]) for name, info in header.items() if "dtype" in info}
    typed = {name: (info, part.clone().view(DTYPES[info["dtype"]])) for name, (info, part) in parts.items()}
    return {name: part.reshape(info["shape"]) for name, (info, part) in typed.items()}
"""

ERROR = '''\
def error(results, exact):
    """The largest error in ULP of the exact value, and the largest relative L2 distance from it."""
    worst = [(0.0, 0.0)]
    for x, y in ((x, y) for x, y in zip(results, exact) if x.is_floating_point() and x.numel()):
        info, apart = torch.finfo(x.dtype), (x.double() - y).abs()
        last = info.eps * torch.exp2(torch.frexp(y).exponent.double() - 1).clamp(min=info.smallest_normal)
        there = apart.isfinite()
        ulp = (apart / last)[there].max().item() if there.any() else math.inf
        worst.append((ulp, (apart[there].norm() / y[there].norm().clamp(min=1e-300)).item()))
    return [max(values) for values in zip(*worst)]
'''

PRINTED = 'f"{name}: largest error {ulp:.6g} ULP (recorded: {expected:.6g}), relative L2 distance {distance:.3g}"'
DIFFER = "(~torch.isclose(x, y.to(x.dtype), rtol=0, atol=0, equal_nan=True)).sum().item()"


@dataclass(frozen=True, slots=True)
class ScriptSettings:
    """The setup of a script.

    compiled: True if side b's function is compiled.
    lines: the lines that configure Inductor as in side b's mode.
    """

    compiled: bool = False
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """The contents of a script.

    codes: the functions of both sides.
    exact: the function that returns the recorded exact values, if the script cannot compute them.
    reference: otherwise, the side that the script executes in double precision.
    """

    sentences: Sequence[str]
    labels: Mapping[Side, str]
    codes: Mapping[Side, SideCode]
    exact: SideCode | None
    reference: Side | None
    ulps: Mapping[Side, float]
    settings: ScriptSettings
    threads: int
    values: Values

    def text(self) -> str:
        """Write the script. Raises NotShown if it is too long."""
        # At least two sentences are needed, since the docstring's quotes are on its first and last lines. Characters
        # that could end the docstring or begin another line are replaced.
        first, *middle, last = (
            re.sub(r"[^\w .,:;/()=+<>@-]", "_", sentence)[:LONGEST_SENTENCE] for sentence in self.sentences
        )
        docstring = [f'"""{first}', "", *middle, f'{last}"""']
        used_dtypes = sorted({tensor.dtype for tensor in self.values.tensors.values()}, key=str)
        dtypes = ", ".join(f'"{CODES[dtype]}": {dtype}' for dtype in used_dtypes)
        compiler = ["import torch._inductor.config"] if self.settings.lines else []
        kinds = sorted({device.partition(":")[0] for device in self._elsewhere.values()})
        settings = [
            f"import json, {'math, ' if self.ulps else ''}sys",
            "import torch",
            *compiler,
            *(f"import {module}  # adds {kind} to torch" for kind in kinds if (module := registry.module_of(kind))),
            "",
            *self.settings.lines,
            f"DTYPES = {{{dtypes}}}",
            f"torch.set_num_threads({self.threads})",
        ]
        lines = [*docstring, *settings, ""]
        for side in SIDES:
            lines += [*self.codes[side].text(f"side_{side}"), ""]
        if self.exact is not None:
            lines += [*self.exact.text("side_exact"), ""]
        lines += [*LOAD.splitlines(), ""]
        if self.ulps:
            lines += [*ERROR.splitlines(), ""]
        lines += self._main()
        text = "\n".join(lines) + "\n"
        if len(lines) > MOST_LINES or len(text) > MOST_BYTES:
            calls = max(len(self.codes[side].lines) for side in SIDES)
            raise NotShown(f"its {calls} lines of calls do not fit into a script of {MOST_LINES} lines")
        # raises a SyntaxError if the text is not valid Python
        compile(text, "script", "exec", dont_inherit=True)
        return text

    @property
    def _elsewhere(self) -> dict[str, str]:
        """The devices of those inputs of the calls that are not on the CPU. Recorded results stay on the CPU."""
        named = self.values.devices.items()
        return {name: device for name, device in named if device != "cpu" and not name.startswith(INPUT_PREFIX)}

    def _main(self) -> list[str]:
        lines = ['values = load(__file__.removesuffix("py") + "safetensors")']
        results = "side(**values)"
        if self._elsewhere:
            results = "[result.cpu() for result in side(**values)]"  # the CPU has double precision
            lines.append(f"DEVICES = {self._elsewhere!a}")
            lines.append('values = {name: value.to(DEVICES.get(name, "cpu")) for name, value in values.items()}')
        if self.ulps:
            lines += self._exact()
        sides = ", ".join(f"({self.labels[side]!a}, {self._function(side)}, {self._expected(side)})" for side in SIDES)
        lines += ["results, reproduced = [], True", f"for name, side, expected in ({sides}):"]
        lines.append(f"    results.append({results})")
        if self.ulps:
            lines += [
                "    ulp, distance = error(results[-1], exact)",
                f"    print({PRINTED})",
                "    reproduced &= math.isclose(ulp, expected, rel_tol=0.5, abs_tol=1.0)",
            ]
        lines += [
            f"differ = sum({DIFFER} for x, y in zip(*results))",
            'print(f"{differ} of {sum(x.numel() for x in results[0])} elements differ between the sides")',
            "sys.exit(0 if reproduced and differ else 1)",
        ]
        return lines

    def _exact(self) -> list[str]:
        if self.exact is not None:
            return ["exact = side_exact(**values)"]
        host = "[result.cpu() for result in {}]" if self._elsewhere else "{}"
        assert self.reference is not None
        held_argument = ", held=lambda dtype: torch.float64" if self.codes[self.reference].casts else ""
        return [
            "wide = {name: value.double() if value.is_floating_point() else value for name, value in values.items()}",
            f"exact = {host.format(f'side_{self.reference}(**wide{held_argument})')}",
        ]

    def _function(self, side: Side) -> str:
        if side == "b" and self.settings.compiled:
            return "torch.compile(side_b, fullgraph=True, dynamic=False)"
        return f"side_{side}"

    def _expected(self, side: Side) -> str:
        return literal(float(f"{self.ulps.get(side, 0.0):.6g}"))
