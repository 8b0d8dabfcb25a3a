"""Bundles go to and come from object stores: a real S3 protocol on loopback, and fsspec's own memory."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from numdrift.harness.errors import CollisionError, NotAvailable, UsageError
from numdrift.harness.tools.bundle.archive import download, is_url, upload


def test_an_object_store_gives_back_what_it_got(object_store: str, tmp_path: Path) -> None:
    made = tmp_path / "made.zip"
    made.write_bytes(bytes(range(256)) * 40_000)

    upload(made, f"{object_store}/study/a.zip")
    download(f"{object_store}/study/a.zip", tmp_path / "back.zip")

    assert (tmp_path / "back.zip").read_bytes() == made.read_bytes()


def test_what_is_there_already_stays_unless_forced(object_store: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"first")
    second.write_bytes(b"second")
    upload(first, f"{object_store}/b.zip")

    with pytest.raises(CollisionError, match="--force"):
        upload(second, f"{object_store}/b.zip")
    download(f"{object_store}/b.zip", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"first"

    upload(second, f"{object_store}/b.zip", force=True)
    download(f"{object_store}/b.zip", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"second"


def test_what_is_missing_in_a_store_is_one_line(object_store: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"{object_store}/none\.zip cannot be read") as caught:
        download(f"{object_store}/none.zip", tmp_path / "back")
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
