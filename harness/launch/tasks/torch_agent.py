"""torchrun's agent on this machine: it meets the agents of the other machines and starts this machine's tasks.

`numdrift run train.py --nnodes 2 --nproc 4 --rdzv-endpoint node0:29400`, typed on each machine, is

    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint node0:29400 --rdzv-id numdrift \
        -m numdrift run train.py

but says in one line why the machines did not meet.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import NumdriftError, UsageError
from .started_task import OWN_AGENT

RUN_ID = "numdrift"

LOCAL = "localhost:0"
"""The endpoint of a single machine: the system chooses a free port."""

JOIN_SECONDS = 600
"""Seconds that an agent waits for the others: those of torchrun."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of one machine.

    nodes: number of machines, each with an agent
    nproc: number of tasks on this machine
    endpoint: HOST:PORT of the machine at which the agents meet
    run_id: text that the agents of a launch share
    """

    nodes: int
    nproc: int
    endpoint: str
    run_id: str = RUN_ID

    def check(self) -> None:
        """Raises UsageError if the agents could not meet."""
        if self.nodes > 1 and not self.endpoint:
            raise UsageError(
                f"--nnodes {self.nodes} needs a place at which the machines meet: name the same port of one of them on "
                "each, as in --rdzv-endpoint node0:29400"
            )
        if self.endpoint and not re.fullmatch(r".+:\d{1,5}", self.endpoint):
            raise UsageError(f"--rdzv-endpoint {self.endpoint!r} is not HOST:PORT, as in node0:29400")
        host = self.endpoint.rpartition(":")[0].strip("[]")
        try:
            socket.getaddrinfo(host or None, 0)
        except OSError as error:
            raise UsageError(
                f"--rdzv-endpoint {self.endpoint!r}: this machine does not know {host} ({error.strerror}); name one of "
                "the machines, or its address"
            ) from None

    def run(self, arguments: Sequence[str]) -> int:
        """Start `numdrift` with these arguments as this machine's tasks. Return their exit code when all have ended.

        The agent ends the tasks when one fails, and it restarts none. Raises UsageError if the machines do not meet.
        """
        # The tasks print why they fail. The agent and its store would add pages on their processes and connections.
        quiet = "TORCH_CPP_LOG_LEVEL" not in os.environ
        if quiet:
            os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"  # torch reads it when it is imported
        # torch is imported here because no other command of numdrift's own process needs it.
        launcher: Any = importlib.import_module("torch.distributed.launcher.api")
        failures: Any = importlib.import_module("torch.distributed.elastic.multiprocessing.errors")
        signals: Any = importlib.import_module("torch.distributed.elastic.multiprocessing.api")
        meeting: Any = importlib.import_module("torch.distributed.elastic.rendezvous.api")
        if quiet:
            del os.environ["TORCH_CPP_LOG_LEVEL"]
        logging.disable(logging.CRITICAL)
        config = launcher.LaunchConfig(
            min_nodes=self.nodes,
            max_nodes=self.nodes,
            nproc_per_node=self.nproc,
            run_id=self.run_id,
            rdzv_backend="c10d",
            rdzv_endpoint=self.endpoint or LOCAL,
            rdzv_configs={"join_timeout": JOIN_SECONDS},
            max_restarts=0,
        )
        os.environ[OWN_AGENT] = "1"
        if self.nproc > 1:
            os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
        try:
            launcher.launch_agent(config, sys.executable, ["-m", "numdrift", *arguments])
        except failures.ChildFailedError as error:
            _, failure = error.get_first_failure()
            return int(failure.exitcode) if failure.exitcode > 0 else NumdriftError.exit_code
        except signals.SignalException as error:
            return 128 + int(error.sigval)
        except meeting.RendezvousError as error:
            raise UsageError(
                f"the {self.nodes} machines did not meet at {self.endpoint}: {' '.join(str(error).split())}; start the "
                "same command on each of them, with the endpoint's host among them and its port open"
            ) from None
        return 0
