"""``vestnik preview``: what each channel would show of a post. Channels that show the same are shown as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text as Line

from vestnik.adapters import registry
from vestnik.autopost.preview import preview as previewed
from vestnik.cli.output import AsJson, console, emit
from vestnik.cli.publish import At, Channels, Html, Link, Markdown, Media, Payload, Tag, Text, narrowed, post_of
from vestnik.cli.session import with_pool
from vestnik.errors import NotFound
from vestnik.settings import load_settings

Row = dict[str, Any]
SHORT = 12  # lines
_NAMES = ("file_name", "url", "blob_ref", "file_id", "attachment_token")
_PLATFORMS = {"telegram": "Telegram", "max": "MAX"}
_PLURALS = {"image": "images", "video": "videos", "audio": "audio files", "file": "files", "animation": "animations"}


def preview(
    workspace: Annotated[str, typer.Argument(help="The workspace whose channels are asked.")],
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
    full: Annotated[bool, typer.Option("--full", help="Show long texts whole.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each channel would get of a post, and why others would not. Nothing is sent or kept."""
    post = post_of(text, html=html, markdown=markdown, tag=tag, link=link, media=media, payload=payload)
    post |= narrowed(at, channel)
    adapters = registry.load_configured(load_settings(), _no_secret)
    found = with_pool(lambda pool: previewed(pool, adapters, workspace, post))
    if as_json:
        emit(found)
        return
    if not found["total"]:
        console.print(f"Workspace {escape(workspace)} has no channels; vestnik apply FILE makes some.")
        return
    for warning in found["warnings"]:
        console.print(f"[yellow]! {escape(warning)}[/]")
    shown = found["channels"]
    for group in _alike(channel for channel in shown if channel["outcome"] in ("enqueued", "suppressed")):
        _show_group(group, full)
    _show_reasons("refused", "red", [channel for channel in shown if channel["outcome"] == "refused"])
    _show_reasons("not for", "dim", [channel for channel in shown if channel["outcome"] == "not_routed"])
    counts = Counter(channel["outcome"] for channel in shown)
    more = {
        "have it already": counts["suppressed"],
        "would refuse it": counts["refused"],
        "are not shown": found["total"] - len(shown),
    }
    told = "".join(f", {n} {what}" for what, n in more.items() if n)
    console.print(f"[bold]{counts['enqueued']}[/] of {found['total']} channels would get it{told}")


def _alike(channels: Iterable[Row]) -> list[list[Row]]:
    """Whoever shows the same at the same time stands together: forty channels are one picture, not forty."""
    groups: dict[str, list[Row]] = {}
    for channel in channels:
        calls = [(c["method"], c["text"], c["media"], _buttons(c["body"])) for c in channel["calls"]]
        said = (
            channel["outcome"],
            channel["reason"],
            channel["goes_at"],
            channel["media_pending"],
            channel["warnings"],
        )
        groups.setdefault(repr((channel["platform"], channel["template_version"], said, calls)), []).append(channel)
    return list(groups.values())


def _show_group(group: list[Row], full: bool) -> None:
    first = group[0]
    platform: str = _PLATFORMS.get(str(first["platform"]), str(first["platform"]))
    names = ", ".join(f"[bold]{escape(channel['channel_id'])}[/]" for channel in group)
    template = f" · template {escape(first['template_version'])}" if first["template_version"] else ""
    console.print(f"{names}  [dim]{escape(platform)}{template} ·[/] {_when(first)}")
    for warning in first["warnings"]:
        console.print(f"  [yellow]! {escape(warning)}[/]")
    for n, call in enumerate(first["calls"], 1):
        number = f"{n}. " if len(first["calls"]) > 1 else ""
        console.print(f"  [cyan]{number}{escape(call['method'])}[/]  {_kinds(call['media'])}".rstrip())
        for line in _body(call, full):
            console.print(line, soft_wrap=True)
    console.print()


def _when(channel: Row) -> str:
    if channel["outcome"] == "suppressed":
        return f"[yellow]nothing: {escape(str(channel['reason']))}[/]"
    moment = channel["goes_at"]
    later = moment if (moment - datetime.now(UTC)).total_seconds() > 1 else None
    if channel["media_pending"]:
        fetched = "goes when its media are fetched"
        return f"[green]{fetched}[/]" if later is None else f"[green]{fetched}, at {_utc(later)} at the earliest[/]"
    return "[green]goes at once[/]" if later is None else f"[green]goes at {_utc(later)}[/]"


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M UTC}"


def _kinds(media: list[Row]) -> str:
    counts = Counter(item["type"] for item in media)
    return ", ".join(f"{n} {_PLURALS[kind] if n > 1 else kind}" for kind, n in counts.items())


def _file(item: Row) -> str:
    named = next((str(item[key]) for key in _NAMES if item.get(key)), "")
    return f"▪ {named} — {item['caption']}" if item.get("caption") else f"▪ {named}"


def _body(call: Row, full: bool) -> list[Line]:
    bar = Line("    │ ", style="cyan dim")
    text = Line(call["text"] or "")
    if _is_html(call["body"]):
        text.highlight_regex(r"</?[a-z][^<>]*>", "dim")
    lines = list(text.wrap(console, max(20, console.width - len(bar)))) if text else []
    for line in lines:
        line.rstrip()
    hidden = 0 if full else max(0, len(lines) - SHORT)
    shown = [bar + line for line in lines[: len(lines) - hidden]]
    if hidden:
        shown.append(bar + Line(f"… {hidden} more lines (--full shows them)", style="dim"))
    shown += [bar + Line(_file(item), style="magenta") for item in call["media"]]
    for row in _buttons(call["body"]):
        shown.append(bar + Line("  ".join(f"[ {text} → {url} ]" for text, url in row), style="blue"))
    return shown


def _is_html(body: Row) -> bool:
    shown = body.get("media")
    places = [body, *(shown if isinstance(shown, list) else [])]
    return any(str(each.get("parse_mode") or each.get("format")).lower() == "html" for each in places)


def _buttons(body: Row) -> list[list[tuple[str, str]]]:
    """Of Telegram's keyboard, or of MAX's."""
    rows = (body.get("reply_markup") or {}).get("inline_keyboard") or []
    for attachment in body.get("attachments") or ():
        if attachment.get("type") == "inline_keyboard":
            rows = attachment["payload"]["buttons"]
    return [[(button["text"], button.get("url", "")) for button in row] for row in rows]


def _show_reasons(title: str, colour: str, channels: list[Row]) -> None:
    """One line for each reason, with the channels that give it."""
    reasons: dict[str, list[str]] = {}
    for channel in channels:
        reasons.setdefault(channel["reason"], []).append(channel["channel_id"])
    for reason, names in reasons.items():
        console.print(f"[{colour}]{title}[/] [bold]{escape(', '.join(names))}[/]: {escape(reason)}")
    if reasons:
        console.print()


async def _no_secret(workspace_id: str, platform: str, auth_ref: str) -> str:
    raise NotFound("a preview needs no secret")
