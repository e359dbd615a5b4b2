"""Files to fetch: ``GET /files/<name>``, with what the admin API put there, and pictures that are always there.

``/files/demo/<1 to 99>.png`` are made when asked for. Faults of the site apply to them too.
"""

from __future__ import annotations

import functools
from io import BytesIO

from aiohttp import web
from PIL import Image, ImageDraw, ImageFont, ImageOps

from vestnik.sandbox.faults import Call, Fault
from vestnik.sandbox.site import SiteFile
from vestnik.sandbox.wire import STATE, play

FILE_NAME = r"[\w.-]+(?:/[\w.-]+)*"
_SIDES = ((960, 640), (800, 800), (720, 960))
_COLOURS = (
    ("#1f3b73", "#7fb2ff"),
    ("#7a1f4b", "#ffb27f"),
    ("#0f5c4d", "#9fe8b5"),
    ("#4a2a80", "#e0a8ff"),
    ("#8a4b00", "#ffe08a"),
    ("#23424f", "#a8dbe6"),
)


def routes() -> list[web.RouteDef]:
    return [
        web.get(r"/files/demo/{number:[1-9]\d?}.png", _demo),
        web.get(rf"/files/{{name:{FILE_NAME}}}", _file),
    ]


class SiteVoice:
    """A web server says no."""

    def error(self, status: int, fault: Fault) -> web.Response:
        headers = {} if fault.retry_after is None else {"Retry-After": str(round(fault.retry_after))}
        return web.Response(status=status, text=fault.message or f"{status}", headers=headers)

    def no(self, fault: Fault) -> web.Response:
        return web.Response(text=fault.message or "")


async def _demo(request: web.Request) -> web.StreamResponse:
    number = int(request.match_info["number"])
    return await _answer(request, SiteFile(f"demo/{number}.png", "image/png", demo_picture(number), 0.0))


async def _file(request: web.Request) -> web.StreamResponse:
    return await _answer(request, request.app[STATE].site.files.get(request.match_info["name"]))


async def _answer(request: web.Request, file: SiteFile | None) -> web.StreamResponse:
    site = request.app[STATE].site
    site.counters["files"] += 1

    def work() -> web.Response:
        if file is None:
            return web.Response(status=404, text="404: no such file")
        headers = {"Content-Type": file.content_type, "ETag": file.etag, "X-Content-Type-Options": "nosniff"}
        # What somebody put here must not become a page of this server.
        headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
        return web.Response(body=file.data, headers=headers)

    call = Call(request.path.removeprefix("/"))
    return await play(request, site, None, SiteVoice(), call, work)


@functools.lru_cache(maxsize=16)
def demo_picture(number: int) -> bytes:
    """A gradient with a number on it, always the same for a number."""
    width, height = _SIDES[number % len(_SIDES)]
    dark, light = _COLOURS[number % len(_COLOURS)]
    # Of a square that is turned, whatever the angle, the middle 180 of 256 pixels are filled.
    ramp = Image.linear_gradient("L").rotate(35 * number % 360).crop((38, 38, 218, 218)).resize((width, height))
    picture = ImageOps.colorize(ramp, dark, light)
    draw = ImageDraw.Draw(picture)
    draw.text((width // 2, height // 2), str(number), "white", ImageFont.load_default(height // 3), anchor="mm")
    out = BytesIO()
    picture.quantize(128).save(out, "PNG", optimize=False)
    return out.getvalue()
