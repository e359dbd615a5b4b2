"""``vestnik requeue``, ``pause``, ``resume``, ``disable``, ``disable-group``, ``enable-group``, ``rotate-auth``,
``release-stuck``: what an operator does by hand, with a name and a reason in the events."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, timedelta
from typing import Annotated, Any, Literal, Protocol
from uuid import UUID

import typer
from pydantic import TypeAdapter, ValidationError
from rich.markup import escape

from vestnik.autopost import operations, rotation, verbs
from vestnik.autopost.bulk import Selection
from vestnik.cli import bulk
from vestnik.cli.look import delivery_named
from vestnik.cli.operator import Operator, Reason, operator_name, reason_of
from vestnik.cli.output import AsJson, console, emit, show
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.errors import ConfigError, NotFound
from vestnik.ops.durations import Duration

Workspace = Annotated[str, typer.Argument(help="The workspace.")]
Channel = Annotated[str, typer.Argument(help="The channel.")]
Group = Annotated[str, typer.Argument(help="The rate group.")]
OnlyPlatform = Annotated[
    str | None, typer.Option("--platform", help="Only its channels of this platform; without it, of all.")
]
_LONGEST = timedelta(days=365)


class _Channels(Protocol):
    def __call__(self, pool: Pool, operator: str, reason: str) -> Awaitable[Sequence[str]]: ...


def requeue(
    deliveries: Annotated[
        list[UUID] | None,
        typer.Argument(
            help="These deliveries; without any, all that the options select.",
            parser=delivery_named,
            metavar="DELIVERY",
        ),
    ] = None,
    *,
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", help="The workspace; found out for deliveries that are named.")
    ] = None,
    reason: Reason = None,
    status: Annotated[
        Literal["dead", "failed_permanent"] | None, typer.Option(help="Which; dead if not given.")
    ] = None,
    channel: bulk.Channels = None,
    platform: bulk.Platform = None,
    rate_group: bulk.RateGroup = None,
    code: bulk.Code = None,
    category: bulk.Category = None,
    tag: bulk.Tag = None,
    since: bulk.Since = None,
    until: bulk.Until = None,
    dry_run: bulk.DryRun = False,
    yes: bulk.Yes = False,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Give deliveries one more try: what is dead, and what failed for good because of the post itself."""
    options = (status, channel, platform, rate_group, code, category, tag, since, until, dry_run or None)
    if deliveries:
        if any(option is not None for option in options):
            raise ConfigError("deliveries are named, so nothing is left to select", hint="leave the other options away")
        _requeue_named(deliveries, workspace, operator_name(operator), reason_of(reason), as_json=as_json)
        return
    if workspace is None:
        raise ConfigError(
            "requeue what?", hint="name deliveries, or a workspace: vestnik requeue --workspace NAME --dry-run"
        )
    selection = Selection(
        status or "dead", channel, platform, rate_group, code, category, tag, bulk.ago(since), bulk.ago(until)
    )
    why = "dry run" if dry_run else reason_of(reason)
    bulk.move(
        "requeue", workspace, [selection],
        operator=operator_name(operator), reason=why, dry_run=dry_run, yes=yes, as_json=as_json,
    )  # fmt: skip


def pause(
    workspace: Workspace,
    channel: Channel,
    *,
    duration: Annotated[str, typer.Option("--for", help="How long: 90s, 30m, 2h, 1d.")] = "1h",
    reason: Reason = None,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Let nothing of a channel begin for a while; posts go on waiting in its queue."""
    lasting = _lasting(duration)
    by, why = operator_name(operator), reason_of(reason)
    until = with_pool(lambda pool: operations.pause(pool, workspace, channel, lasting, operator=by, reason=why))
    if as_json:
        emit({"channel_id": channel, "paused_until": until})
        return
    console.print(f"{escape(channel)} is paused until {until.astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}")


def resume(
    workspace: Workspace, channel: Channel, *, reason: Reason = None, operator: Operator = None, as_json: AsJson = False
) -> None:
    """Let a channel go on that is paused or disabled, whoever stopped it; its refusals are forgotten."""
    _on_channels(
        lambda pool, operator, reason: operations.resume(pool, workspace, channel, operator=operator, reason=reason),
        "goes on", operator, reason, as_json=as_json,
    )  # fmt: skip


def disable(
    workspace: Workspace, channel: Channel, *, reason: Reason = None, operator: Operator = None, as_json: AsJson = False
) -> None:
    """Switch a channel off until it is resumed; new posts pass it by."""
    _on_channels(
        lambda pool, operator, reason: operations.disable(pool, workspace, channel, operator=operator, reason=reason),
        "is disabled", operator, reason, as_json=as_json,
    )  # fmt: skip


def disable_group(
    workspace: Workspace,
    group: Group,
    *,
    platform: OnlyPlatform = None,
    reason: Reason = None,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Switch all channels of a rate group off."""
    _on_channels(
        lambda pool, operator, reason: operations.disable_group(
            pool, workspace, group, operator=operator, reason=reason, platform=platform
        ),
        "is disabled", operator, reason, as_json=as_json,
    )  # fmt: skip


def enable_group(
    workspace: Workspace,
    group: Group,
    *,
    platform: OnlyPlatform = None,
    reason: Reason = None,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Let all channels of a rate group go on, whoever stopped them."""
    _on_channels(
        lambda pool, operator, reason: operations.enable_group(
            pool, workspace, group, operator=operator, reason=reason, platform=platform
        ),
        "goes on", operator, reason, as_json=as_json,
    )  # fmt: skip


def rotate_auth(
    workspace: Workspace,
    channels: Annotated[list[str] | None, typer.Argument(help="These channels.", metavar="CHANNEL")] = None,
    *,
    to: Annotated[str, typer.Option(help="The credential that they shall send with; it must be there.")],
    old: Annotated[str | None, typer.Option("--from", help="Instead of channels: all that send with this one.")] = None,
    platform: Annotated[str | None, typer.Option(help="With --from: only channels of this platform.")] = None,
    rate_group: Annotated[str | None, typer.Option(help="Their new rate group; without it they keep theirs.")] = None,
    wait: Annotated[str, typer.Option(help="How long to wait until what is being sent has ended.")] = "60s",
    reason: Annotated[str | None, typer.Option(help="Why, for the events.")] = None,
    yes: bulk.Yes = False,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Let channels send with another credential. What is being sent ends with the old one first."""
    if bool(channels) == (old is not None):
        raise ConfigError("which channels?", hint="name them, or say --from OLD for all that send with it")
    lasting, by = _lasting(wait, least=0), operator_name(operator)

    async def work(pool: Pool) -> list[dict[str, Any]]:
        chosen = channels or await rotation.channels_with_auth(pool, workspace, old or "", platform=platform)
        if not chosen:
            raise NotFound(f"no channel of workspace {workspace} sends with {old}")
        if old is not None:
            bulk.confirm(f"rotate {bulk.many(len(chosen), 'channel', 'channels')} from {old} to {to}", yes=yes)
        return await rotation.rotate_auth(
            pool, workspace, chosen, to, operator=by, reason=reason, rate_group=rate_group, wait=lasting
        )

    rows = with_pool(work)
    show(rows, ("channel_id", "outcome", "old_auth_ref", "new_auth_ref", "sending"), as_json=as_json, empty="")
    if any(row["outcome"] == "sending" for row in rows):
        raise ConfigError(
            "some channels are still sending and keep their old credential",
            hint="once more with a longer --wait; vestnik release-stuck if their sender is gone",
        )


def release_stuck(
    workspace: Workspace,
    *,
    older_than: Annotated[str, typer.Option(help="Claimed or sending for so long, at least a minute.")] = "10m",
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Let go again what has been claimed or sending for too long. Whether its send arrived is not known."""
    age, by = _lasting(older_than, least=60), operator_name(operator)
    rows = with_pool(lambda pool: operations.release_stuck(pool, workspace, operator=by, older_than=age))
    show(
        rows, ("delivery_id", "channel_id", "from_status", "outcome"), as_json=as_json, empty="Nothing is stuck."
    )  # fmt: skip


def _requeue_named(deliveries: list[UUID], workspace: str | None, operator: str, reason: str, *, as_json: bool) -> None:
    async def work(pool: Pool) -> list[operations.Row]:
        found = workspace or await verbs.workspace_of_delivery(pool, deliveries[0])
        return await operations.requeue(pool, found, deliveries, operator=operator, reason=reason)

    show(with_pool(work), ("channel_id", "outcome", "delivery_id", "detail"), as_json=as_json, empty="")


def _on_channels(verb: _Channels, told: str, operator: str | None, reason: str | None, *, as_json: bool) -> None:
    by, why = operator_name(operator), reason_of(reason)
    channels = with_pool(lambda pool: verb(pool, by, why))
    if as_json:
        emit([{"channel_id": channel} for channel in channels])
        return
    for channel in channels:
        console.print(f"{escape(channel)} {told}")


def _lasting(text: str, *, least: float = 1) -> timedelta:
    try:
        found: timedelta = TypeAdapter(Duration).validate_python(text)
    except (ValidationError, OverflowError):
        raise ConfigError(f"{text!r} is no duration", hint="write it like 90s, 30m, 2h or 1d") from None
    if not timedelta(seconds=least) <= found <= _LONGEST:
        raise ConfigError(f"{text} is too {'long' if found > _LONGEST else 'short'}", hint="at most 365d")
    return found
