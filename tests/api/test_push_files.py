"""``POST /v1/push`` as a form: the payload first, then the files that it names."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from api_rig import BOUNDARY, MEDIA_LIMIT, Api, form_part, payload_part, picture

from vestnik.autopost import verbs

PICTURE = picture()
POST = {"text": "Look", "media": [{"type": "image", "upload": "photo"}]}


def photo(data: bytes = PICTURE, name: str = "photo") -> bytes:
    return form_part(name, data, "cat.png", "image/png")


async def kept(api: Api) -> list[dict[str, Any]]:
    return await api.sql("select * from autopost.media_origin order by created_at, blob_ref")


def objects(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "objects").rglob("*")) if path.is_file()]


async def test_a_post_with_its_picture_is_accepted_and_waits_for_nothing(api: Api, tmp_path: Path) -> None:
    status, answer, _ = await api.push_form(payload_part(POST), photo())
    assert status == 202, answer
    assert (answer["enqueued"], answer["failed"], "media_pending" in answer) == (2, 0, False)
    sha256 = hashlib.sha256(PICTURE).hexdigest()
    stored = (await api.sql("select payload from autopost.messages"))[0]["payload"]
    assert stored["media"] == [{"type": "image", "blob_ref": f"sha256:{sha256}"}]
    (origin,) = await kept(api)
    assert {key: origin[key] for key in ("workspace_id", "sha256", "content_type", "size_bytes", "file_name", "meta")} == {
        "workspace_id": "shop", "sha256": sha256, "content_type": "image/png", "size_bytes": len(PICTURE),
        "file_name": "cat.png", "meta": {"width": 8, "height": 8},
    }  # fmt: skip
    assert objects(tmp_path) == [PICTURE]


async def test_the_same_bytes_are_the_same_post(api: Api, tmp_path: Path) -> None:
    first = (await api.push_form(payload_part(POST | {"source_ref": "1"}), photo()))[1]
    again = {"text": "Look", "source_ref": "2", "media": [{"type": "image", "upload": "another"}]}
    status, second, _ = await api.push_form(payload_part(again), photo(name="another"))
    assert (status, second["message_id"], second["suppressed"]) == (202, first["message_id"], 2)
    assert objects(tmp_path) == [PICTURE]
    assert (await api.push_form(payload_part(POST | {"source_ref": "3"}), photo(picture(1))))[1]["suppressed"] == 0


async def test_the_same_form_at_once_is_a_duplicate(api: Api) -> None:
    assert (await api.push_form(payload_part(POST), photo()))[0] == 202
    assert (await api.push_form(payload_part(POST), photo()))[:2] == (200, {"outcome": "duplicate"})


async def test_an_album_keeps_the_order_of_the_payload_whatever_the_order_of_the_files(api: Api) -> None:
    media = [{"type": "image", "upload": name} for name in ("a", "b", "a")]
    form = (payload_part({"media": media}), photo(picture(2), "b"), photo(picture(1), "a"))
    assert (await api.push_form(*form))[0] == 202
    stored = (await api.sql("select payload from autopost.messages"))[0]["payload"]["media"]
    refs = [f"sha256:{hashlib.sha256(picture(shade)).hexdigest()}" for shade in (1, 2, 1)]
    assert [item["blob_ref"] for item in stored] == refs


async def test_a_form_without_files_is_a_post_too(api: Api) -> None:
    assert (await api.push_form(payload_part({"text": "just words"})))[0] == 202


async def test_pieces_that_come_one_byte_at_a_time_are_the_same_file(api: Api, tmp_path: Path) -> None:
    body = payload_part(POST) + photo() + f"--{BOUNDARY}--\r\n".encode()

    async def slowly() -> Any:
        for at in range(0, len(body), 7):
            yield body[at : at + 7]
            await asyncio.sleep(0)

    headers = {"Authorization": f"Bearer {api.secret}", "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    async with api.http.post(f"{api.url}/v1/push", headers=headers, data=slowly()) as response:
        assert response.status == 202
    assert objects(tmp_path) == [PICTURE]


@pytest.mark.parametrize(
    ("parts", "status", "says"),
    [
        ((photo(),), 422, "payload: must be the first part"),
        ((photo(), payload_part(POST)), 422, "payload: must be the first part"),
        ((), 422, "payload: must be the first part"),
        ((payload_part(POST),), 422, "the form has no part 'photo'"),
        ((payload_part(POST), photo(), photo()), 422, "two parts 'photo'"),
        ((payload_part(POST), photo(name="other")), 422, "no item names the part 'other'"),
        ((payload_part({"text": "x"}), payload_part({"text": "x"})), 422, "no item names the part 'payload'"),
        ((payload_part(b"{"), photo()), 422, "payload: not JSON"),
        ((payload_part(POST | {"colour": "red"}), photo()), 422, "colour: unknown key"),
        ((payload_part(POST | {"meta": {"n": "\0"}}), photo()), 422, "NUL"),
        ((payload_part(POST), photo(b"%PDF-1.7 it says")), 422, "it should be an image, and is application/pdf"),
        ((payload_part(POST), photo(b"")), 422, "it is empty"),
        ((payload_part(POST), photo(b"GIF89a")), 422, "it begins like a picture, and is none"),
        ((payload_part(POST), photo(b"x" * (MEDIA_LIMIT + 1))), 413, "larger than the 1048576 bytes allowed"),
        ((payload_part({"text": "x" * 300_000}),), 413, "larger than the 262144 bytes"),
    ],
)  # fmt: skip
async def test_a_form_that_is_wrong_is_refused_and_leaves_no_post(
    api: Api, tmp_path: Path, parts: tuple[bytes, ...], status: int, says: str
) -> None:
    found, answer, _ = await api.push_form(*parts)
    assert found == status, answer
    assert says in answer["detail"], answer
    assert sum((await api.traces()).values()) == 0
    assert all(sorted(objects(tmp_path)) == [PICTURE] for _ in await kept(api)), "only what is whole is kept"
    noted = await api.sql("select action from autopost.events")
    assert noted == [{"action": "ingress_payload_rejected"}]


@pytest.mark.parametrize("item", [{"upload": 5}, {"upload": ""}, {"upload": "photo", "url": "https://e.x/a.png"}, "x"])
async def test_an_item_of_the_wrong_shape_is_refused_before_its_file(api: Api, item: Any) -> None:
    media = [{"type": "image"} | item if isinstance(item, dict) else item]
    status, answer, _ = await api.push_form(payload_part({"text": "x", "media": media}), photo())
    assert (status, answer["detail"].startswith("media: item 1")) == (422, True), answer
    assert await kept(api) == []


async def test_one_file_as_two_kinds_is_refused(api: Api) -> None:
    media = [{"type": "image", "upload": "photo"}, {"type": "file", "upload": "photo"}]
    status, answer, _ = await api.push_form(payload_part({"media": media}), photo())
    assert (status, "as another type" in answer["detail"]) == (422, True)


async def test_a_form_that_breaks_off_is_400(api: Api, tmp_path: Path) -> None:
    whole = payload_part(POST) + photo()
    for length in (0, 10, len(payload_part(POST)) + 30, len(whole) - 20, len(whole)):
        status, answer, _ = await api.push_form(whole[:length], end=False)
        assert (status, answer["detail"]) == (400, "the form breaks off before its end."), length
    assert sum((await api.traces()).values()) == 0
    assert all(b == PICTURE for b in objects(tmp_path))


async def test_a_connection_that_breaks_off_leaves_nothing(api: Api, tmp_path: Path) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    start = payload_part(POST) + photo()[:-20]
    head = (
        f"POST /v1/push HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {api.secret}\r\nContent-Length: 99999\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    )
    writer.write(head.encode() + start)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(10):
        while not await api.sql("select 1 from autopost.events where action = 'ingress_payload_rejected'"):
            await asyncio.sleep(0.01)
    assert objects(tmp_path) == []
    assert sum((await api.traces()).values()) == 0


@pytest.mark.parametrize("content_type", ["multipart/form-data", f"multipart/form-data; boundary={'x' * 500}"])
async def test_a_form_without_a_usable_boundary_is_400(api: Api, content_type: str) -> None:
    status, answer, _ = await api.push_form(payload_part(POST), **{"Content-Type": content_type})
    assert (status, "boundary" in answer["detail"]) == (400, True)


async def test_a_part_without_a_name_is_400(api: Api) -> None:
    nameless = f"--{BOUNDARY}\r\nContent-Type: image/png\r\n\r\nx\r\n".encode()
    assert (await api.push_form(payload_part(POST), nameless))[0] == 400


class Unread:
    """A body that is never asked for."""

    def __init__(self) -> None:
        self.asked = 0

    async def __aiter__(self) -> Any:
        self.asked += 1
        yield payload_part(POST)


@pytest.mark.parametrize(("gate", "status"), [("secret", 401), ("rate", 429)])
async def test_who_may_not_push_uploads_nothing(api: Api, gate: str, status: int) -> None:
    """The client says that it will wait (Expect: 100-continue), and is never told to go on."""
    secret = "wrong" if gate == "secret" else await verbs.create_endpoint(api.pool, "shop", "slow", rps=0.001)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    if gate == "rate":
        async with api.http.post(f"{api.url}/v1/push", headers=headers, data=payload_part({"text": "x"})) as first:
            assert first.status == 400
    body = Unread()
    async with api.http.post(f"{api.url}/v1/push", headers=headers, data=body, expect100=True) as response:
        assert response.status == status
    assert body.asked == 0
    assert await kept(api) == []


async def test_an_object_store_that_fails_is_503_and_the_form_is_welcome_again(api: Api, tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    folder.rename(tmp_path / "unplugged")
    folder.write_text("where the folder was")
    status, answer, headers = await api.push_form(payload_part(POST), photo())
    assert (status, "Retry-After" in headers) == (503, True), answer
    assert str(tmp_path) not in json.dumps(answer)
    assert sum((await api.traces()).values()) == 0
    folder.unlink()
    (tmp_path / "unplugged").rename(folder)
    assert (await api.push_form(payload_part(POST), photo()))[0] == 202


async def test_the_description_tells_of_forms(api: Api) -> None:
    described = (await api.get("/openapi.json"))[1]["paths"]["/v1/push"]["post"]
    assert set(described["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    assert {"400", "413", "503"} <= set(described["responses"])
