"""What Inductor, and other backends of torch.compile, can do of an aten node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.fx

from ... import torch_private
from ...errors import NotAvailable
from ...records.backend_work import SupportAnswer
from ...torch_private.inductor_lowering import compile_by_backend, lower
from ..one_node import examples, one_node

if TYPE_CHECKING:
    from ...records.mode_spec import ModeSpec


@contextmanager
def inductor_as_stated(spec: ModeSpec) -> Iterator[None]:
    """Have Inductor be configured as a mode states it, for a while."""
    with torch_private.inductor_settings_kept(spec.inductor):
        torch_private.set_inductor_numerics(
            contract=None if spec.contract is None else spec.contract == "fast",
            emulate_casts=None if spec.emulate_casts is None else spec.emulate_casts == "on",
            fallback_random=None if spec.fallback_random is None else spec.fallback_random == "on",
        )
        torch_private.set_inductor_options(spec.inductor)
        yield


def asked_of_inductor(node: torch.fx.Node) -> SupportAnswer:
    """Whether Inductor lowers a node by itself: it is decomposed and lowered alone, and no code is generated."""
    alone = one_node(node)
    try:
        lowering = lower(alone.graph, lambda: [kind.empty() for kind in alone.inputs])
    except NotAvailable:
        raise
    except Exception as error:  # noqa: BLE001, whatever stops the lowering is the answer
        return SupportAnswer(_said(error), "inductor lowering")
    if lowering.fallbacks:
        return SupportAnswer(
            f"falls back to {', '.join(lowering.fallbacks)}", "inductor lowering", lowering.operations
        )
    return SupportAnswer(instructions=lowering.operations)


def asked_of_backend(node: torch.fx.Node, backend: str) -> SupportAnswer:
    """Whether another backend of torch.compile takes a node: it compiles it alone, and executes it once.

    It refuses where it raises and eager execution does not.
    """
    alone = one_node(node)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            compile_by_backend(backend, alone.graph, examples(alone.inputs))(*examples(alone.inputs))
        except Exception as error:  # noqa: BLE001, as above
            try:
                alone.graph(*examples(alone.inputs))
            except Exception:  # noqa: BLE001, these values are refused by the op itself
                return SupportAnswer()
            return SupportAnswer(_said(error), backend)
    return SupportAnswer()


def _said(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
