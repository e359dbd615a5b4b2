"""``vestnik push``: one post into a workspace, from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from vestnik.autopost import verbs
from vestnik.cli.output import AsJson, console
from vestnik.cli.session import with_pool
from vestnik.errors import InvalidPayload


def push(
    workspace: Annotated[str, typer.Argument(help="The workspace to publish in.")],
    text: Annotated[str | None, typer.Argument(help="The text; - reads it from standard input.")] = None,
    *,
    html: Annotated[bool, typer.Option("--html", help="The text is HTML.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The text is Markdown.")] = False,
    tag: Annotated[list[str] | None, typer.Option(help="A tag that routes it; may be given again.")] = None,
    link: Annotated[list[str] | None, typer.Option(help="A link to show under the text.")] = None,
    channel: Annotated[list[str] | None, typer.Option(help="Only into this channel; may be given again.")] = None,
    payload: Annotated[Path | None, typer.Option(help="A JSON file with the whole payload instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Publish one post in every channel that wants it."""
    if payload:
        post = _read(payload)
    else:
        post = {
            "text": sys.stdin.read() if text == "-" else text,
            "tags": tag,
            "links": link,
            "channels": channel,
        }
        post["parse_mode"] = "HTML" if html else "Markdown" if markdown else None
        post = {key: value for key, value in post.items() if value}
    done = with_pool(lambda pool: verbs.publish(pool, workspace, post))
    if as_json:
        typer.echo(json.dumps(done, default=str, ensure_ascii=False))
        return
    console.print(f"[green]{done['enqueued']}[/] queued, {done['suppressed']} suppressed, {done['failed']} refused")
    for warning in done["warnings"]:
        console.print(f"[yellow]{escape(warning)}[/]")


def _read(path: Path) -> dict[str, Any]:
    try:
        post = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise InvalidPayload([f"{path}: {e}"]) from e
    if not isinstance(post, dict):
        raise InvalidPayload([f"{path}: must hold a JSON object"])
    return post
