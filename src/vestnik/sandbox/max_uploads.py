"""MAX's uploads: a place to upload to is asked of the API, the bytes go to another server, here under /upload.

Pictures and files get their token from that server; videos and audios have theirs from the beginning, and that
server answers in XML. The bytes come as the part ``data`` of a form, or in pieces, one after the other, each with
its Content-Range. A place may be used again: an answer may have been lost. One that is too old is as good as unknown.
"""

from __future__ import annotations

import re
import secrets
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from vestnik.sandbox.faults import UPLOAD_HOST, Call
from vestnik.sandbox.max_wire import MaxVoice, Refused, refuse
from vestnik.sandbox.media import BEYOND, Handle, Intake, Session, Upload
from vestnik.sandbox.multipart import PIECE, BadForm, read_form
from vestnik.sandbox.state import Platform, State, Token
from vestnik.sandbox.wire import STATE, play

LARGEST = {"image": 50 * 1024**2, "video": 250 * 1024**2, "audio": 256 * 1024**2, "file": 4 * 1024**3}
LONGEST_SIDE = 7680
RETVAL = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?><retval>1</retval>'
_EARLY = ("video", "audio")  # have their token before the upload
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")
_UNREAD = re.compile(rb"....ftyp(heic|heix|mif1|msf1)|II\*\0|MM\0\*", re.DOTALL)  # pictures whose sides stay unknown
_VOICE = MaxVoice()


def routes() -> list[web.RouteDef]:
    return [web.post("/upload/{session}", _receive), web.get("/upload/{session}", _status)]


def open_upload(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    kind = request.query.get("type", "")
    if kind not in LARGEST:
        raise Refused(400, f"Unknown upload type: {kind}", "bad_upload_type")
    name, early = secrets.token_urlsafe(18), _new_token() if kind in _EARLY else None
    now = request.app[STATE].clock.time()
    platform.open_session(name, Session(token.bot, kind, early, now))
    if early is not None:
        platform.handles.put(early, Handle(token.bot, kind, early, None, now))
    url = f"{request.scheme}://{request.host}/upload/{name}"
    return {"url": url} if early is None else {"url": url, "token": early}


async def _receive(request: web.Request) -> web.StreamResponse:
    state = request.app[STATE]
    platform = state.platforms["max"]
    platform.counters["upload_requests"] += 1
    try:
        session = _session(request, platform)
        upload = await (_form(request) if request.content_type == "multipart/form-data" else _piece(request, session))
        if upload is not None:
            _check(session.kind, upload)
    except Refused as e:
        return refuse(platform, e)

    def accept() -> web.Response:
        return _finish(state, platform, session, upload) if upload else _so_far(session)

    return await play(request, platform, None, _VOICE, Call(UPLOAD_HOST), accept)


async def _status(request: web.Request) -> web.Response:
    platform = request.app[STATE].platforms["max"]
    try:
        return _so_far(_session(request, platform))
    except Refused as e:
        return refuse(platform, e)


def _session(request: web.Request, platform: Platform) -> Session:
    session, ttl = platform.sessions.get(request.match_info["session"]), platform.limits.upload_ttl_s
    if session is None or (ttl is not None and request.app[STATE].clock.time() - session.at > ttl):
        raise Refused(404, "Unknown upload", "unknown_upload")
    return session


async def _form(request: web.Request) -> Upload:
    try:
        form = await read_form(request)
    except BadForm as e:
        raise Refused(400, f"Upload failed: {e}", "bad_form") from None
    if "data" not in form.files:
        raise Refused(400, "The file is expected in the field `data`", "bad_form")
    return form.files["data"]


async def _piece(request: web.Request, session: Session) -> Upload | None:
    found = _RANGE.fullmatch(request.headers.get("Content-Range", ""))
    if found is None:
        raise Refused(400, "Content-Range is needed", "bad_range")
    first, last, total = (int(number) for number in found.groups())
    if first == 0:
        session.intake = Intake()
    if first != session.intake.size or not first <= last < total:
        raise Refused(416, f"Expected bytes from {session.intake.size}", "bad_range")
    async for piece in request.content.iter_chunked(PIECE):
        session.intake.add(piece)
    if session.intake.size != last + 1:
        session.intake = Intake()
        raise Refused(400, "The piece has another size than its Content-Range", "bad_range")
    if last + 1 < total:
        return None
    named = re.search(r'filename="([^"]*)"', request.headers.get("Content-Disposition", ""))
    name = unquote(request.headers.get("X-File-Name", named[1] if named else ""))
    return session.intake.finish(name, request.content_type)


def _check(kind: str, upload: Upload) -> None:
    stored = upload.stored
    if not stored.size:
        raise Refused(400, "The file is empty", "empty_file")
    if stored.size > LARGEST[kind]:
        raise Refused(413, f"The file is too large for {kind}: at most {LARGEST[kind]} bytes", "file_too_big")
    if kind != "image":
        return
    if not stored.picture_type and not _UNREAD.match(upload.start):
        raise Refused(400, "The file is not a picture", "bad_picture")
    if max(stored.width, stored.height) > LONGEST_SIDE:
        pixels = "too many pixels" if stored.width == BEYOND else f"{stored.width}x{stored.height}"
        raise Refused(400, f"The picture is too large: {pixels}", "bad_picture")


def _finish(state: State, platform: Platform, session: Session, upload: Upload) -> web.Response:
    """Only what is said about the file remains; its token may be used from now on."""
    platform.counters["uploads"] += 1
    state.kept.put(upload)
    token, now = session.token or _new_token(), state.clock.time()
    handle = Handle(session.bot, session.kind, token, upload.stored, now)
    known = platform.handles.put(token, handle)
    known.file, known.at = upload.stored, now
    if session.kind in _EARLY:
        return web.Response(text=RETVAL, content_type="text/xml")
    if session.kind == "image":
        return web.json_response({"photos": {secrets.token_urlsafe(12): {"token": token}}})
    return web.json_response({"fileId": secrets.randbelow(10**12), "token": token})


def _so_far(session: Session) -> web.Response:
    size = session.intake.size
    return web.Response(status=201, text=f"0-{size - 1}" if size else "", content_type="text/plain")


def _new_token() -> str:
    return secrets.token_urlsafe(36)
