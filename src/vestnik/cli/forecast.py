"""``vestnik forecast``: when a post would leave. Channels that wait for the same reason until about the same time stand together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.markup import escape

from vestnik.autopost.forecast import forecast as foreseen
from vestnik.cli.output import AsJson, console, emit, show
from vestnik.cli.publish import At, Channels, Html, Link, Markdown, Media, Payload, Tag, Text, narrowed, post_of
from vestnik.cli.session import with_pool

Row = dict[str, Any]
_REASONS = {"never": "red", "refused": "red", "suppressed": "yellow", "not_routed": "dim"}
_WORDS = {"never": "never", "refused": "refused", "suppressed": "has it already", "not_routed": "not for"}


def forecast(
    workspace: Annotated[str, typer.Argument(help="The workspace whose queue it would join.")],
    text: Text = None,
    *,
    html: Html = False,
    markdown: Markdown = False,
    tag: Tag = None,
    link: Link = None,
    media: Media = None,
    at: At = None,
    channel: Channels = None,
    payload: Payload = None,
    as_json: AsJson = False,
) -> None:
    """Say when a post would leave each channel, at today's rates and queue. Nothing is sent or kept."""
    post = post_of(text, html=html, markdown=markdown, tag=tag, link=link, media=media, payload=payload)
    post |= narrowed(at, channel)
    found = with_pool(lambda pool: foreseen(pool, workspace, post))
    if as_json:
        emit(found)
        return
    if not found["total"]:
        console.print(f"Workspace {escape(workspace)} has no channels; vestnik apply FILE makes some.")
        return
    rows = found["channels"]
    leaving = sorted((row for row in rows if row["leaves_at"]), key=lambda row: (row["leaves_at"], row["channel_id"]))
    if leaving:
        show([_told(row) for row in leaving], ("leaves", "channel_id", "ahead", "note"), as_json=False, empty="")
    for outcome, colour in _REASONS.items():
        for row in rows:
            if row["outcome"] == outcome:
                console.print(
                    f"[{colour}]{_WORDS[outcome]}[/] {escape(row['channel_id'])}: {escape(row['reason'] or '')}"
                )
    _show_total(found)


def _told(row: Row) -> Row:
    note = "once its media are fetched" if row["media_pending"] else None
    return {"leaves": _utc(row["leaves_at"]), "channel_id": row["channel_id"], "ahead": row["ahead"], "note": note}


def _show_total(found: Row) -> None:
    counted = f"[bold]{found['leaving']}[/] of {found['total']} channels"
    if found["last_at"]:
        counted += f", first {_utc(found['first_at'])}, last {_utc(found['last_at'])}"
    if found["never"]:
        counted += f"; {found['never']} never"
    if found["total"] > len(found["channels"]):
        counted += f"; {found['total'] - len(found['channels'])} are not shown"
    console.print(counted)


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}"
