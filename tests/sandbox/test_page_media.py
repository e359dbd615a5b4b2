"""Files on the pages: a grid of pictures, names and sizes of the rest, nothing from elsewhere."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from sandbox_client import picture

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


class Page(HTMLParser):
    """What stands on a page: pictures, classes of elements, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.images: list[str] = []
        self.tiles: list[str] = []
        self.articles: list[str] = []
        self.names: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        if tag == "img":
            self.images.append(told["src"])
        if tag == "article":
            self.articles.append(told["class"])
        if told.get("class", "").startswith("tile"):
            self.tiles.append(told["class"])
        self.names += [name for name in told if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


async def page(client: Any, path: str = "/chats/telegram/-1001?lang=en") -> Page:
    said = await client.ask("GET", path)
    assert said.status == 200
    assert "img-src 'self'" in said.headers["Content-Security-Policy"]
    return Page(str(said.body))


async def album(client: Any, count: int) -> None:
    files = {f"f{n}": (f"{n}.png", picture(8 + n, 8)) for n in range(count)}
    media = [{"type": "photo", "media": f"attach://{name}"} for name in files]
    media[0]["caption"] = "Three <views>"
    said = await client.upload("sendMediaGroup", files, media=json.dumps(media))
    assert said.status == 200, said.body


async def test_an_album_is_one_post_with_its_pictures_side_by_side(client: Any) -> None:
    await album(client, 3)
    shown = await page(client)
    assert shown.articles == ["with-media"]
    assert shown.tiles == ["tile of1", "tile of2", "tile of2"]
    assert "Three <views>" in shown.text
    assert len(set(shown.images)) == 3
    for address in shown.images:
        async with client.session.get(client.sandbox.url + address) as answer:
            assert (answer.status, answer.content_type, (await answer.read())[:4]) == (200, "image/png", b"\x89PNG")


async def test_two_albums_are_two_posts(client: Any, clock: Any) -> None:
    await album(client, 2)
    clock.pass_by(5)
    await album(client, 2)
    assert len((await page(client)).articles) == 2


@pytest.mark.parametrize("count", range(2, 11))
async def test_every_album_fills_its_rows(client: Any, count: int) -> None:
    await album(client, count)
    tiles = [int(tile[-1]) for tile in (await page(client)).tiles]
    assert len(tiles) == count
    assert sum(1 / width for width in tiles) == pytest.approx(round(sum(1 / width for width in tiles)))


async def test_files_are_named_with_their_sizes(client: Any) -> None:
    await client.upload("sendDocument", {"document": ("price list.pdf", bytes(2048))})
    await client.upload("sendAudio", {"audio": ("song.mp3", bytes(600 * 1024))})
    await client.telegram("sendVideo", video="https://e.org/a/film.mp4")
    shown = await page(client)
    for part in ("price list.pdf", "2.0 KB", "PDF", "song.mp3", "600 KB", "♪", "film.mp4", "by its address", "▶"):
        assert part in shown.text
    assert shown.images == []


async def test_nothing_is_loaded_from_elsewhere_but_what_the_sandbox_serves_is_shown(client: Any, clock: Any) -> None:
    for address in ("https://e.org/a.png", f"{client.sandbox.url}/files/demo/1.png", "http://127.0.0.1:1/files/a.png"):
        assert (await client.telegram("sendPhoto", photo=address)).status == 200
    assert (await page(client)).images == ["/files/demo/1.png"]


async def test_pictures_and_files_of_max(client: Any) -> None:
    images = [await client.max_token("image", picture(n, 4), f"{n}.png") for n in (5, 6)]
    attachments = [{"type": "image", "payload": {"token": token}} for token in images]
    await client.max("Two views", attachments=attachments)
    token = await client.max_token("file", b"abc", "a.txt")
    await client.max("", attachments=[{"type": "file", "payload": {"token": token}}])
    shown = await page(client, "/chats/max/-1001?lang=en")
    assert shown.articles == ["with-media", "with-media"]
    assert (len(shown.images), shown.tiles) == (2, ["tile of2"] * 2)
    assert "a.txt" in shown.text


async def test_the_list_of_chats_says_what_hangs_on_the_last_post(client: Any) -> None:
    await client.upload("sendPhoto", {"photo": ("a.png", picture())}, caption="A view")
    await client.max("", attachments=[{"type": "image", "payload": {"url": "https://e.org/a.png"}}])
    assert "Photo: A view" in (await page(client, "/?lang=en")).text
    assert "Фото: A view" in (await page(client, "/?lang=ru")).text


async def test_the_list_of_chats_says_of_an_album_what_stands_under_it(client: Any, clock: Any) -> None:
    await client.telegram("sendMessage", text="before")
    clock.pass_by(9)
    await album(client, 4)
    text = (await page(client, "/?lang=en")).text
    assert "Photo: Three <views>" in text
    assert "before" not in text


async def test_no_name_of_a_file_breaks_out_of_the_page(client: Any) -> None:
    await client.upload("sendPhoto", {"photo": ("a.png", picture())}, caption=EVIL)
    await client.telegram("sendVideo", video=f"https://e.org/{EVIL}", caption=EVIL)
    await client.telegram("sendDocument", document=f"https://e.org/{EVIL}")
    shown = await page(client)
    assert shown.names == []
    assert "script" not in shown.tags
    assert len(shown.images) == 1


async def test_half_a_character_never_reaches_a_page(client: Any) -> None:
    head = {"Content-Type": "application/json", "Authorization": "42:TOKEN-of-the-bot"}
    body = rb'{"chat_id": "-1001", "text": "\ud800", "title": "\ud800"}'
    telegram = await client.ask("POST", "/telegram/bot42:TOKEN-of-the-bot/sendMessage", data=body, headers=head)
    assert telegram.body["description"] == "Bad Request: can't parse JSON object"
    said = await client.ask("POST", "/max/messages?chat_id=-1001", data=body, headers=head)
    assert said.body["message"] == "Cannot parse the body as JSON"
    assert (await client.ask("PUT", "/admin/max/chats/-1001", data=body, headers=head)).status == 400
    album = rb'[{"type": "photo", "media": "https://e.org/a", "caption": "\ud800"}, {"type": "photo", "media": "https://e.org/a"}]'
    assert (await client.telegram("sendMediaGroup", media=album.decode())).status == 400
    form = b'--x\r\nContent-Disposition: form-data; name="document"; filename="\xff.txt"\r\n\r\nabc\r\n--x--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    path = "/telegram/bot42:TOKEN-of-the-bot/sendDocument?chat_id=-1001"
    assert (await client.ask("POST", path, data=form, headers=kind)).status == 200
    assert "?.txt" in (await page(client)).text


@pytest.mark.parametrize("sha256", ["0" * 64, "a", "F" * 64])
async def test_a_picture_that_is_not_there(client: Any, sha256: str) -> None:
    assert (await client.ask("GET", f"/thumbs/{sha256}")).status == 404


async def test_a_file_that_is_no_picture_is_never_served_as_one(client: Any) -> None:
    page_of_html = b"<script>alert(1)</script>"
    await client.upload("sendDocument", {"document": ("a.png", page_of_html)})
    (post,) = await client.posts("telegram")
    assert (await client.ask("GET", f"/thumbs/{post['media'][0]['sha256']}")).status == 404
