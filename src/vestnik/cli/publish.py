"""``vestnik push``: one post into a workspace, from the command line."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import from_json
from rich.markup import escape

from vestnik.autopost import verbs
from vestnik.autopost.payload import screen
from vestnik.cli.files import Files, with_files
from vestnik.cli.output import AsJson, console
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.errors import ConfigError, InvalidPayload

Text = Annotated[str | None, typer.Argument(help="The text; - reads it from standard input.")]
Html = Annotated[bool, typer.Option("--html", help="The text is HTML.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="The text is Markdown.")]
Tag = Annotated[list[str] | None, typer.Option(help="A tag that routes it; may be given again.")]
Link = Annotated[list[str] | None, typer.Option(help="A link to show under the text.")]
Media = Annotated[list[str] | None, typer.Option(help="A picture by its address; may be given again.")]
At = Annotated[
    str | None,
    typer.Option(help="When, like 2027-01-31T09:00+03:00; without an offset, this machine's time."),
]
Channels = Annotated[list[str] | None, typer.Option("--channel", help="Only into this channel; may be given again.")]
Payload = Annotated[Path | None, typer.Option(help="A JSON file with the whole payload instead.")]


def push(
    workspace: Annotated[str, typer.Argument(help="The workspace to publish in.")],
    text: Text = None,
    *,
    html: Html = False,
    markdown: Markdown = False,
    tag: Tag = None,
    link: Link = None,
    media: Media = None,
    file: Files = None,
    at: At = None,
    channel: Channels = None,
    payload: Payload = None,
    as_json: AsJson = False,
) -> None:
    """Publish one post in every channel that wants it."""
    post = post_of(text, html=html, markdown=markdown, tag=tag, link=link, media=media, payload=payload)
    post |= narrowed(at, channel)
    done = with_pool(lambda pool: _publish(pool, workspace, post, file or []))
    if as_json:
        typer.echo(json.dumps(done, default=str, ensure_ascii=False))
        return
    console.print(f"[green]{done['enqueued']}[/] queued, {done['suppressed']} suppressed, {done['failed']} refused")
    if done["media_pending"]:
        console.print(f"{done['media_pending']} wait until their media are fetched")
    console.print(f"[dim]message {done['message_id']}[/]")
    for warning in done["warnings"]:
        console.print(f"[yellow]{escape(warning)}[/]")


async def _publish(pool: Pool, workspace: str, post: dict[str, Any], files: list[Path]) -> verbs.Row:
    return await verbs.publish(pool, workspace, await with_files(pool, workspace, post, files))


def post_of(
    text: str | None,
    *,
    html: bool,
    markdown: bool,
    tag: list[str] | None,
    link: list[str] | None,
    media: list[str] | None,
    payload: Path | None,
) -> dict[str, Any]:
    """A payload from the options, or from the file that was named instead."""
    if payload:
        return _read(payload)
    for url in media or ():
        if "://" not in url:
            raise ConfigError(f"{url!r} is no address", hint="for a file of this machine: vestnik push … --file FILE")
    post = {
        "text": _standard_input() if text == "-" else text,
        "tags": tag,
        "links": link,
        "media": [{"type": "image", "url": url} for url in media or ()],
        "parse_mode": "HTML" if html else "Markdown" if markdown else None,
    }
    return {key: value for key, value in post.items() if value}


def narrowed(at: str | None, channels: list[str] | None) -> dict[str, Any]:
    """What the options say of when and where, as keys of a payload."""
    moment = moment_of(at) if at else None
    post = {"channels": channels, "scheduled_for": moment.isoformat() if moment else None}
    return {key: value for key, value in post.items() if value}


def moment_of(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone() if moment.tzinfo is None else moment
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r} is not a moment", hint="write it like 2027-01-31T09:00+03:00") from None


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as e:
        raise InvalidPayload([f"standard input is not text in UTF-8: {e}"]) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        post: dict[str, Any] = from_json(screen(path.read_bytes()))
    except (OSError, InvalidPayload) as e:
        raise InvalidPayload([f"{path}: {e.strerror if isinstance(e, OSError) else e}"]) from e
    return post
