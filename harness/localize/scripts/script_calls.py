"""The calls of a block as Python code: plain calls of torch's ops on named tensors."""

from __future__ import annotations

import keyword
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...tape.replaying.in_double import EXACT_DTYPES
from ...tape.tape import Call, GeneratorState, Tape, View, leaves, views_in
from ...torch_private.dispatching import registered_operation
from ...torch_private.operators import schema_of, written_values
from .localized_values import NotShown, ScriptTensor, Values, base_of

HELD = "held=lambda dtype: dtype"


@dataclass(slots=True)
class SideCode:
    """A function of a script.

    parameters: the parameters of the function, which are names of tensors in the script's file.
    lines: the lines of the function.
    casts: True if the dtypes that the lines pass to ops go through `held`, so that the function can be executed in
        double.
    reads: the tensors that the calls take but do not make, by their text in the lines.
    """

    parameters: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    casts: bool = False
    reads: dict[str, View] = field(default_factory=dict)

    def text(self, name: str) -> list[str]:
        signature = [*self.parameters, *([HELD] if self.casts else []), "**_"]
        return [f"def {name}({', '.join(signature)}):", *(f"    {line}" for line in self.lines)]


class CallWriter:
    """The writer of the calls of one side's slice.

    It adds the inputs of the calls to `values`. With `aligned`, the inputs have their recorded alignment in memory.
    """

    def __init__(self, block: Tape, values: Values, *, aligned: bool = False) -> None:
        self._block = block
        self._aligned = aligned
        self._values = values
        self._code = SideCode()
        self._named: dict[int, ScriptTensor] = {}
        self._made = 0
        self._generators = 0

    def code(self, results: Sequence[torch.Tensor], stem: str) -> SideCode:
        """Write the whole function. An output that the calls neither take nor make is passed from `results`, as
        a parameter named after `stem`."""
        views: dict[int, list[View]] = {}
        wishes: dict[int, str] = {}
        for call in self._block.calls:
            # the views that the call takes, with their names in the schema
            names = [argument.name for argument in _schema(call).arguments]
            for wish, value in {**dict(zip(names, call.arguments, strict=False)), **call.keywords}.items():
                for view in (leaf for leaf in leaves(value) if isinstance(leaf, View)):
                    views.setdefault(view.slot, []).append(view)
                    wishes.setdefault(view.slot, wish)
        for watched in self._block.watched:
            views.setdefault(watched.view.slot, []).append(watched.view)
        for slot, data in self._block.inputs.items():
            base, content = base_of(data, views[slot], aligned=self._aligned)
            self._named[slot] = replace(base, name=self._parameter(wishes.get(slot, "tensor"), content))
        written = list(dict.fromkeys(view.slot for call in self._block.calls for view in _written(call)))
        # a script calls its functions more than once, so they must not write to their arguments
        for slot in written:
            if slot in self._named:
                name = self._named[slot].name
                self._code.lines.append(f"{name} = {name}.clone()")
        # The slots that are read after each call
        later = {output.view.slot for output in self._block.watched}
        read_later = []
        for call in reversed(self._block.calls):
            read_later.append(set(later))
            later |= {view.slot for view in views_in(call)}
        read = read_later[::-1]
        for number, call in enumerate(self._block.calls):
            self._write(call, read[number])
        written_names = [self._named[slot].name for slot in written if slot in self._named]
        outputs = [
            self._named[output.view.slot].text(output.view)
            if output.view.slot in self._named
            else recorded(result, stem, self._code, self._values, written_names)
            for output, result in zip(self._block.watched, results, strict=True)
        ]
        self._code.lines.append(f"return [{', '.join(outputs)}]")
        return self._code

    def _parameter(self, wish: str, content: torch.Tensor) -> str:
        name = self._values.add(wish, content, self._code.parameters)
        self._code.parameters.append(name)
        return name

    def _write(self, call: Call, read: set[int]) -> None:
        for state in call.draw.states if call.draw is not None else ():
            name = self._parameter("generator_state", state.state)
            kind = state.device.partition(":")[0]
            setter = (
                f"torch.set_rng_state({name})"
                if kind == "cpu"
                else f"torch.get_device_module({kind!a}).set_rng_state({name}, {state.device!a})"
            )
            self._code.lines.append(setter)
        texts = [self._text(value) for value in call.arguments]
        for name, value in call.keywords.items():  # a schema may have an argument `from`, which is a keyword in Python
            text = self._text(value)
            texts.append(f"{name}={text}" if _is_plain(name) else f"**{{{name!a}: {text}}}")
        # `torch.ops.aten.add.Tensor`, with getattr for a part that is not a valid name in Python
        text = "torch.ops"
        namespace, _, qualified = call.op.partition(".")
        name, _, overload = qualified.rpartition(".")
        for part in (namespace, name, overload):
            text = f"{text}.{part}" if _is_plain(part) else f"getattr({text}, {part!a})"
        self._code.lines.append(f"{self._targets(call, read)}{text}({', '.join(texts)})")

    def _targets(self, call: Call, read: set[int]) -> str:
        """Return the names for a call's results, with the equals sign."""
        names = []
        for output, is_fresh in zip(call.outputs, call.fresh, strict=True):
            if is_fresh and isinstance(output, View) and output.slot in read:
                self._made += 1
                named = ScriptTensor(f"t{self._made}", output.dtype, output.offset, output.size, output.stride)
                self._named[output.slot] = named
                names.append(named.name)
            else:
                names.append("_")
        if set(names) <= {"_"}:
            return ""
        kinds = [str(returned.type) for returned in _schema(call).returns]
        lists = [kind for kind in kinds if "List" in kind or "[]" in kind]
        if lists and len(kinds) > 1:
            raise NotShown(f"{call.op} returns lists among other results")
        return f"{names[0]} = " if len(kinds) == 1 and not lists else f"[{', '.join(names)}] = "

    def _text(self, value: Any) -> str:
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._text(element) for element in value)}]"
        if isinstance(value, View):
            if value.slot not in self._named:
                raise NotShown("it takes a tensor that no recorded op made")
            text = self._named[value.slot].text(value)
            if value.slot in self._block.inputs:
                self._code.reads.setdefault(text, value)
            return text
        if isinstance(value, GeneratorState):
            self._generators += 1
            name, state = f"g{self._generators}", self._parameter("generator_state", value.state)
            self._code.lines += [f"{name} = torch.Generator({value.device!a})", f"{name}.set_state({state})"]
            return name
        if isinstance(value, torch.dtype) and value in EXACT_DTYPES:
            self._code.casts = True
            return f"held({value})"
        return literal(value)


def recorded(result: torch.Tensor, stem: str, code: SideCode, values: Values, written: Sequence[str] = ()) -> str:
    """Pass a recorded result to the function as a parameter to which it does not write."""
    name = values.add(stem, result.contiguous(), written)
    if name not in code.parameters:
        code.parameters.append(name)
    return name


def recorded_code(results: Sequence[torch.Tensor], stem: str, values: Values) -> SideCode:
    """Write a function that returns the recorded results."""
    code = SideCode()
    outputs = [recorded(result, stem, code, values) for result in results]
    code.lines.append(f"return [{', '.join(outputs)}]")
    return code


def literal(value: Any) -> str:
    """Write a plain argument as code. Raises NotShown for any other value."""
    if value is None or isinstance(value, (bool, int)):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, str):
        return ascii(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!a})"
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    raise NotShown(f"an argument is a {type(value).__name__}")


def _is_plain(name: str) -> bool:
    """Check whether a name in torch is a valid name in Python."""
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


def _schema(call: Call) -> Any:
    return schema_of(registered_operation(call.op))


def _written(call: Call) -> list[View]:
    operation: Any = registered_operation(call.op)
    values = written_values(operation, call.arguments, call.keywords)
    return [view for view in values if isinstance(view, View)]
