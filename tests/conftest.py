"""What several test files need: the command line as a user has it, and small training scripts."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

from .processes.forked import forked_trainings, numdrift_in

ROOT = Path(__file__).parent.parent
TINY = ROOT / "tests" / "e2e" / "scripts" / "tiny.py"

CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]

settings.register_profile("numdrift", deadline=None)  # a busy machine is not a failure
settings.load_profile("numdrift")

Numdrift = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def numdrift(tmp_path: Path, request: pytest.FixtureRequest) -> Numdrift:
    """Run the command line in a folder of the test's own, and give what it printed.

    The processes are forked from one that has imported torch; where a test is marked `own_processes`, each is started.
    """
    if request.node.get_closest_marker("own_processes") is None:
        return functools.partial(numdrift_in, tmp_path)

    def run(*arguments: str | Path, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "numdrift", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="module")
def trainings_are_forked() -> Iterator[None]:
    """What the Python interface starts in the test's own process is forked."""
    with forked_trainings():
        yield


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Heed Ctrl-C here and in the processes started: a shell's background jobs begin with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def tiny() -> Path:
    """A training of ten steps that can be told to go wrong; see its docstring."""
    return TINY


@pytest.fixture(scope="module")
def object_store() -> Iterator[str]:
    """The URL of an empty bucket of an S3 server on loopback."""
    server_module = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    s3fs.S3FileSystem.clear_instance_cache()  # those of an earlier server
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        bucket = f"bucket-{uuid.uuid4().hex}"
        s3fs.S3FileSystem().mkdir(bucket)
        yield f"s3://{bucket}"
    server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which `scripts/browser` installs."""
    if not CHROMIUM.exists():
        pytest.skip("chromium is not installed: bash scripts/browser")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()
