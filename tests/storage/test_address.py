"""Addresses of stores: two forms, clear refusals, and no secret in any of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from vestnik.errors import ConfigError
from vestnik.settings import Settings
from vestnik.storage import open_store


def test_the_data_folder_is_the_default(tmp_path: Path) -> None:
    data = tmp_path / "data folder"
    settings = Settings(_env_file=None, data_dir=data)  # type: ignore[call-arg]
    open_store(settings.object_store)
    assert (data / "objects").is_dir()
    assert (data / "objects").stat().st_mode & 0o777 == 0o700


def test_a_relative_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(_env_file=None, data_dir=Path(".data"))  # type: ignore[call-arg]
    assert settings.object_store == (tmp_path / ".data/objects").as_uri()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "neither with file:/// nor with s3://"),
        ("/srv/objects", "neither with"),
        ("gs://bucket", "neither with"),
        ("file://host/srv", "a folder is written"),
        ("file:///srv?x=1", "a folder is written"),
        ("file:objects", "a folder is written"),
        ("s3://", "name of a bucket"),
        ("s3://ab", "name of a bucket"),
        ("s3://Under_score", "name of a bucket"),
        ("s3://bucket:99", "neither with"),
        ("s3://[bucket", "not an address"),
        ("s3://SEKRIT@bucket", "belong together"),
        ("s3://key:SEKRIT@bucket?endpoint=minio:9000", "the endpoint is not"),
        ("s3://key:SEKRIT@bucket?endpoint=https://", "the endpoint is not"),
        ("s3://key:SEKRIT@bucket?regoin=x", "no option 'regoin'"),
        ("s3://key:SEK/RIT@bucket", "it is not an address"),
    ],
)
def test_what_is_no_address(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        open_store(url)
    assert "file:///folder, or s3://" in (caught.value.hint or "")
    assert "SEKRIT" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "objects").write_bytes(b"")
    with pytest.raises(ConfigError, match="the folder for objects cannot be used: .*objects"):
        open_store((tmp_path / "objects").as_uri())


async def test_nothing_tells_the_secret() -> None:
    # Port 9 of this machine answers nobody.
    store = open_store("s3://AKIAKEY:SEKRIT@bucket?endpoint=http://127.0.0.1:9")
    with pytest.raises(Exception, match="cannot be reached") as caught:
        await store.exists("a")
    assert "SEKRIT" not in repr(caught.value) + repr(store)


def test_settings_do_not_show_the_address() -> None:
    settings = Settings(_env_file=None, object_store_url="s3://key:SEKRIT@bucket")  # type: ignore[call-arg]
    assert "SEKRIT" not in repr(settings)
    with pytest.raises(ValidationError):
        Settings(_env_file=None, media_max_bytes=0)  # type: ignore[call-arg]
