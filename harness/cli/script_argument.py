"""How a command is told which script to run."""

from __future__ import annotations

import click

script_argument = click.argument("script", required=False, type=click.UNPROCESSED)
"""A path, or the name of a console script; `numdrift.harness.launch.reproducer.asked_for` reads it."""

module_option = click.option(
    "-m",
    "--module",
    metavar="NAME",
    help="Run a module, as `python -m NAME` would from here, in place of SCRIPT.",
)
strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Make an error of what was not understood of the script, in place of a doubt.",
)
