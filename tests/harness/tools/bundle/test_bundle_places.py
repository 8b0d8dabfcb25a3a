"""Bundles go to and come from object stores: a real S3 protocol on loopback, and fsspec's own memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from numdrift.harness.errors import CollisionError, NotAvailable, UsageError
from numdrift.harness.tools.bundle.archive import download, is_url, upload


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The URL of an empty bucket of an S3 server on loopback."""
    server_module = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem().mkdir("bundles")
        yield "s3://bundles"
    server.stop()


def test_an_object_store_gives_back_what_it_got(store: str, tmp_path: Path) -> None:
    made = tmp_path / "made.zip"
    made.write_bytes(bytes(range(256)) * 40_000)

    upload(made, f"{store}/study/a.zip")
    download(f"{store}/study/a.zip", tmp_path / "back.zip")

    assert (tmp_path / "back.zip").read_bytes() == made.read_bytes()


def test_what_is_there_already_stays_unless_forced(store: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"first")
    second.write_bytes(b"second")
    upload(first, f"{store}/b.zip")

    with pytest.raises(CollisionError, match="--force"):
        upload(second, f"{store}/b.zip")
    download(f"{store}/b.zip", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"first"

    upload(second, f"{store}/b.zip", force=True)
    download(f"{store}/b.zip", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"second"


def test_what_is_missing_in_a_store_is_one_line(store: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"s3://bundles/none\.zip cannot be read") as caught:
        download(f"{store}/none.zip", tmp_path / "back")
    assert "\n" not in str(caught.value)


def test_any_place_of_fsspec_does(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    url = f"memory://{uuid.uuid4().hex}/a.zip"

    upload(tmp_path / "a", url)
    download(url, tmp_path / "b")

    assert (tmp_path / "b").read_bytes() == b"content"


def test_an_unknown_place_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises((UsageError, NotAvailable), match="nowhere://a"):
        upload(tmp_path / "a", "nowhere://a")


def test_paths_are_no_urls() -> None:
    assert not is_url("runs/train")
    assert not is_url("C:/train.zip")
    assert is_url("s3://bucket/train.zip")
