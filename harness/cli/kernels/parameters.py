"""Arguments that several commands take.

This module does not import torch, since a shell may request completions at every key press.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from numdrift.kernels.registry import built_in, op_name

SECONDS = 120.0
"""The default time limit for a user's kernel, in seconds."""


def named_op(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the op's name, for example `gelu` for `aten.gelu` and `aten::gelu`."""
    return value if value is None else op_name(value)


def complete_op(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ops that begin with `incomplete`. If `incomplete` has a prefix (`aten.`, `aten::`), so do the ops."""
    begun = op_name(incomplete)
    prefix = incomplete.removesuffix(begun)
    return [
        CompletionItem(f"{prefix}{operation.name}", help=operation.summary)
        for operation in built_in().operations()
        if operation.name.startswith(begun)
    ]


def complete_kernel(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the kernels of the command's op that begin with `incomplete`; if there are none, complete file names."""
    registry = built_in()
    op, equals, begun = incomplete.rpartition("=")
    names = {operation.name for operation in registry.operations()}
    # if a later option has no value yet, click leaves the arguments in ctx.args
    words = map(op_name, (op, ctx.params.get("op") or "", *ctx.args))
    items = [
        CompletionItem(f"{op}{equals}{kernel.name}", help=kernel.description)
        for kernel in registry.kernels(next((word for word in words if word in names), ""))
        if kernel.name.startswith(begun)
    ]
    return items or [CompletionItem(incomplete, type="file")]


op_argument = click.argument("op", callback=named_op, shell_complete=complete_op)
timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=SECONDS, show_default=True,
    metavar="SECONDS", help="The time limit for loading a file of your own, and then for each set of calls.",
)  # fmt: skip
