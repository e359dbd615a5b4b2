"""The site: files to fetch, with the type that somebody gave them, and everything that can go wrong with an answer."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from sandbox_client import picture

from vestnik.sandbox import site
from vestnik.sandbox.site import Site


async def put(client: Any, name: str, data: bytes, kind: str | None = "image/png") -> Any:
    headers = {"Content-Type": kind} if kind else {}
    skip = {} if kind else {"skip_auto_headers": ["Content-Type"]}
    return await client.ask("PUT", f"/admin/files/{name}", data=data, headers=headers, **skip)


async def get(client: Any, path: str, **how: Any) -> tuple[int, bytes, Any]:
    async with client.session.get(client.sandbox.url + path, **how) as answer:
        return answer.status, await answer.read(), answer.headers


async def test_a_file_is_served_as_it_was_given(client: Any) -> None:
    said = await put(client, "folder/a.png", b"abc")
    assert said.body == {"url": f"{client.sandbox.url}/files/folder/a.png", "size": 3, "type": "image/png"}
    status, data, headers = await get(client, "/files/folder/a.png")
    assert (status, data, headers["Content-Type"]) == (200, b"abc", "image/png")
    assert headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    await put(client, "folder/a.png", b"abcd")
    assert (await get(client, "/files/folder/a.png"))[1] == b"abcd"
    told = await client.admin("GET", "site")
    assert told["files"] == {"folder/a.png": {"size": 4, "type": "image/png"}}
    assert told["counters"]["files"] == 2
    assert (await client.ask("DELETE", "/admin/files/folder/a.png")).status == 200
    assert (await get(client, "/files/folder/a.png"))[0] == 404
    assert (await client.ask("DELETE", "/admin/files/folder/a.png")).status == 404


@pytest.mark.parametrize(
    ("name", "told", "served"),
    [
        ("a.png", "text/html", "text/html"),
        ("a.png", "video/mp4", "video/mp4"),
        ("a.png", None, "image/png"),
        ("a.mp4", None, "video/mp4"),
        ("a", None, "application/octet-stream"),
    ],
)
async def test_its_type_is_what_it_is_said_to_be(client: Any, name: str, told: str | None, served: str) -> None:
    await put(client, name, picture(), told)
    assert (await get(client, f"/files/{name}"))[2]["Content-Type"] == served


async def test_a_type_that_no_header_can_carry(client: Any) -> None:
    assert (await put(client, "a.png", b"abc", "image/пнг")).status == 400
    assert (await get(client, "/files/a.png"))[0] == 404


async def test_pictures_that_are_always_there(client: Any) -> None:
    status, data, headers = await get(client, "/files/demo/7.png")
    assert (status, headers["Content-Type"], data[:4]) == (200, "image/png", b"\x89PNG")
    assert (await get(client, "/files/demo/7.png"))[1] == data != (await get(client, "/files/demo/8.png"))[1]
    for name in ("0", "100", "a"):
        assert (await get(client, f"/files/demo/{name}.png"))[0] == 404


async def test_files_have_a_limit_each_and_together(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vestnik.sandbox import admin_site

    monkeypatch.setattr(admin_site, "LARGEST_FILE", 10)
    monkeypatch.setattr(site, "MOST_BYTES", 25)
    monkeypatch.setattr(site, "MOST_FILES", 3)
    assert (await put(client, "a", bytes(11))).status == 413
    assert [(await put(client, name, bytes(10))).status for name in ("a", "b", "c")] == [200, 200, 400]
    assert (await put(client, "b", bytes(10))).status == 200  # in the place of what it was
    assert [(await put(client, name, b"x")).status for name in ("d", "e")] == [200, 400]


@pytest.mark.parametrize("path", ["/admin/files/a%20b", "/admin/files/", "/admin/files/a//b", "/admin/files/.%2F"])
async def test_names_that_no_file_has(client: Any, path: str) -> None:
    assert (await client.ask("PUT", path, data=b"a")).status in (404, 405)
    assert (await client.admin("GET", "site"))["files"] == {}


async def test_a_fault_is_for_all_of_the_site_for_files_or_for_one_of_them(client: Any) -> None:
    for name in ("a", "b"):
        await put(client, name, b"abc")
    await client.ask("POST", "/admin/feeds/news/items", [])

    async def statuses(fault: dict[str, Any]) -> list[int]:
        assert (await client.ask("PUT", "/admin/site/faults", fault)).status == 200
        return [(await get(client, path))[0] for path in ("/files/a", "/files/b", "/feeds/news.xml")]

    assert await statuses({"kind": "503"}) == [503] * 3
    assert await statuses({"kind": "404", "method": "files"}) == [404, 404, 200]
    assert await statuses({"kind": "403", "method": "files/a"}) == [403, 200, 200]
    assert await statuses({"kind": "410", "method": "feeds/news.xml"}) == [200, 200, 410]
    assert await statuses({"kind": "500", "method": "files", "after": 1, "times": 1}) == [200, 500, 200]
    assert await client.admin("GET", "site/faults") == []
    await client.admin("PUT", "site/faults", {"kind": "429", "retry_after": 1.6})
    assert (await get(client, "/files/a"))[2]["Retry-After"] == "2"
    assert await client.admin("DELETE", "site/faults") == []
    assert (await get(client, "/files/a"))[0] == 200


async def test_answers_that_end_too_early(client: Any) -> None:
    await put(client, "a", bytes(range(100)))
    await client.admin("PUT", "site/faults", [{"kind": "truncated", "times": 1}, {"kind": "cut", "times": 1}])
    status, data, headers = await get(client, "/files/a")
    assert (status, data, headers["Content-Length"]) == (200, bytes(range(50)), "50")
    with pytest.raises(aiohttp.ClientPayloadError):
        await get(client, "/files/a")
    assert len((await get(client, "/files/a"))[1]) == 100


async def test_an_answer_without_end(client: Any) -> None:
    await put(client, "a.png", picture())
    await client.admin("PUT", "site/faults", {"kind": "endless"})
    async with client.session.get(f"{client.sandbox.url}/files/a.png") as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "image/png")
        assert "Content-Length" not in answer.headers
        data = await answer.content.readexactly(3 * 1024 * 1024)
    assert data.startswith(picture())
    assert data.endswith(bytes(1024))
    assert (await client.ask("GET", "/admin")).status == 200  # whoever leaves it is not waited for


async def test_redirects_to_another_place_and_in_a_circle(client: Any) -> None:
    await put(client, "a", b"abc")
    place = "http://10.0.0.1/secret?a=1"
    fault = {"kind": "redirect", "location": place, "method": "files/a", "times": 1}
    await client.admin("PUT", "site/faults", [fault, {"kind": "redirect"}])
    status, _, headers = await get(client, "/files/a", allow_redirects=False)
    assert (status, headers["Location"]) == (302, place)
    with pytest.raises(aiohttp.TooManyRedirects):
        await get(client, "/files/a?b=1")


@pytest.mark.parametrize(
    ("where", "fault", "said"),
    [
        ("site", {"kind": "not_ready"}, "not_ready is only for max"),
        ("site", {"kind": "404", "method": "messages"}, "method is one of files, feeds"),
        ("site", {"kind": "redirect", "location": "http://a\r\nSet-Cookie: b"}, "location is an address"),
        ("telegram", {"kind": "redirect"}, "redirect is only for site"),
        ("max", {"kind": "endless"}, "endless is only for site"),
        ("telegram", {"kind": "not_ready"}, "not_ready is only for max"),
        ("telegram", {"kind": "500", "method": "messages"}, "method is one of getMe"),
        ("max", {"kind": "500", "method": "sendMessage"}, "method is one of me, chats, subscriptions, messages"),
    ],
)
async def test_a_fault_in_a_place_that_cannot_have_it(client: Any, where: str, fault: object, said: str) -> None:
    answer = await client.ask("PUT", f"/admin/{where}/faults", fault)
    assert answer.status == 400
    assert said in answer.body["error"]


async def test_reset_empties_the_site(client: Any) -> None:
    await put(client, "a", b"abc")
    await client.admin("PUT", "site/faults", {"kind": "500"})
    await client.ask("POST", "/admin/reset")
    told = await client.admin("GET", "site")
    assert told == {"counters": {}, "faults": [], "files": {}, "feeds": {}}
    assert isinstance(client.sandbox.state.site, Site)
