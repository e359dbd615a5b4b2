"""One row of rules per workspace: the specification's values to begin with, and each of them counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from pydantic import ValidationError

from vestnik.autopost.declaration import Policy, read_declaration
from vestnik.errors import ConfigError

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

BUSY = {"scope": "platform", "code": "500"}
NOT_READY = {"scope": "delivery", "code": "attachment.not.ready"}
FORBIDDEN = {"scope": "channel", "code": "403"}
REVOKED = {"scope": "platform", "code": "401"}


async def under_way(workspace: Autopost, text: str = "hi") -> Any:
    if not await workspace.sql("select 1 from autopost.channels where workspace_id = %s", workspace.workspace):
        await workspace.channel()
    await workspace.push(text)
    (row,) = await workspace.take()
    return row


async def waits(workspace: Autopost, error: dict[str, Any] = BUSY, tries: int = 4) -> list[float]:
    row, found = await under_way(workspace), []
    for _ in range(tries):
        await workspace.retry(row["delivery_id"], error, row["lease"])
        until = (await workspace.delivery(row["delivery_id"]))["next_retry_at"]
        found.append(round((until - workspace.now).total_seconds(), 3))
        workspace.now = until
        (row,) = await workspace.take()
    return found


async def claims(workspace: Autopost, rate: float | None, posts: int = 30) -> int:
    await workspace.channel(rate_rps=rate)
    await workspace.push_batch(*[{"text": f"post {n}"} for n in range(posts)])
    return len(await workspace.claim())


async def swept_after(workspace: Autopost, call: str) -> int:
    """Whole seconds that a sweep still leaves alone what ``call`` has taken."""
    await workspace.channel()
    await workspace.push("hi")
    await getattr(workspace, call)()
    taken = workspace.now
    for second in (6, 7, 8, 299, 300, 301):
        workspace.now = taken + timedelta(seconds=second)
        if sum(await workspace.sweep()):
            return second - 1
    raise AssertionError("it never came back")


async def refusals_until_disabled(workspace: Autopost) -> int:
    for n in range(1, 9):
        row = await under_way(workspace, f"post {n}")
        await workspace.fail(row["delivery_id"], FORBIDDEN, row["lease"])
        if not (await workspace.channel_row())["enabled"]:
            return n
        workspace.wait(hours=2)
    raise AssertionError("it was never disabled")


async def tries_until_dead(workspace: Autopost) -> int:
    row, tries = await under_way(workspace), 1
    while await workspace.retry(row["delivery_id"], BUSY, row["lease"]) != "dead":
        workspace.wait(hours=1)
        (row,) = await workspace.take()
        tries += 1
    return tries


async def times_asked_for_a_file(workspace: Autopost) -> int:
    """Up to 20, a second apart, but that the last of them count as tries."""
    await workspace.policy(max_attempts=1, not_ready_backoff_max="2 seconds")
    row = await under_way(workspace)
    for n in range(1, 20):
        if await workspace.retry(row["delivery_id"], NOT_READY, row["lease"]) == "dead":
            return n
        workspace.wait(seconds=2)
        (row,) = await workspace.take()
    return 20


async def pause(workspace: Autopost) -> timedelta:
    row = await under_way(workspace)
    await workspace.fail(row["delivery_id"], FORBIDDEN, row["lease"])
    until = (await workspace.channel_row())["paused_until"]
    return until - workspace.now


async def cooldown(workspace: Autopost) -> timedelta:
    row = await under_way(workspace)
    await workspace.fail(row["delivery_id"], REVOKED, row["lease"])
    until = await workspace.value(
        "select cooldown_until from autopost.platform_limits where workspace_id = %s", workspace.workspace
    )
    return until - workspace.now


async def wait_after_lost_send(workspace: Autopost) -> timedelta:
    await under_way(workspace)
    workspace.wait(seconds=301)
    await workspace.sweep()
    return (await workspace.deliveries())[0]["next_retry_at"] - workspace.now


async def hours_held_back(workspace: Autopost) -> int:
    await workspace.channel(dedup_ttl_hours=None)
    row = await under_way(workspace)
    await workspace.sent(row["delivery_id"], row["lease"])
    sent = workspace.now
    for hour in (2, 3, 4, 167, 168, 169):
        workspace.now = sent + timedelta(hours=hour)
        if not (await workspace.push("hi"))["suppressed"]:
            return hour - 1
    raise AssertionError("it is held back for ever")


async def receipt_lifetime(workspace: Autopost) -> timedelta:
    await workspace.endpoint(secret_hash=workspace.workspace)
    await workspace.push_batch({"text": "hi", "source_ref": "r"}, endpoint="door", gated=True)
    until = await workspace.value(
        "select expires_at from autopost.ingress_receipts where workspace_id = %s", workspace.workspace
    )
    return until - workspace.now


async def files_waited_for(workspace: Autopost) -> int:
    await workspace.channel(platform="max", target_id="1")
    picture = {"type": "image", "url": "https://e.example/a.png"}
    return (await workspace.push({"media": [picture]}))["media_pending"]


async def refused_for_its_size(workspace: Autopost) -> int:
    await workspace.channel()
    blob = {"blob_ref": "b", "origin_url": "b", "content_type": "video/mp4", "size_bytes": 2_000_000}
    await workspace.sql("select autopost.store_origin(%s, %s)", workspace.workspace, Jsonb(blob))
    return (await workspace.push({"media": [{"type": "video", "blob_ref": "b"}]}))["failed"]


async def warned_of_a_neighbour(workspace: Autopost) -> int:
    await workspace.channel()
    at = (workspace.now + timedelta(hours=5)).isoformat()
    await workspace.push({"text": "one", "scheduled_for": at})
    return len((await workspace.push({"text": "two", "scheduled_for": at}))["warnings"])


Look = Callable[["Autopost"], Awaitable[Any]]

# Per column: what to look at, what it is by default, another value, what it is then.
EFFECTS: dict[str, tuple[Look, Any, Any, Any]] = {
    "claim_per_channel": (lambda w: claims(w, None), 20, 4, 4),
    "claim_horizon": (lambda w: claims(w, 1.0), 6, "2 seconds", 3),
    "max_attempts": (tries_until_dead, 5, 2, 2),
    "backoff_base": (waits, [2, 4, 8, 16], "3 seconds", [3, 6, 12, 24]),
    "backoff_factor": (waits, [2, 4, 8, 16], 3, [2, 6, 18, 54]),
    "backoff_max": (waits, [2, 4, 8, 16], "5 seconds", [2, 4, 5, 5]),
    "not_ready_backoff": (lambda w: waits(w, NOT_READY), [1, 2, 3, 4], "2 seconds", [2, 4, 5, 5]),
    "not_ready_backoff_max": (lambda w: waits(w, NOT_READY), [1, 2, 3, 4], "2 seconds", [1, 2, 2, 2]),
    "not_ready_patience": (times_asked_for_a_file, 20, "10 seconds", 6),
    "pause_on_permanent_for": (pause, timedelta(hours=1), "6 hours", timedelta(hours=6)),
    "disable_after_permanent_streak": (refusals_until_disabled, 3, 2, 2),
    "platform_cooldown_for": (cooldown, timedelta(minutes=5), "1 minute", timedelta(minutes=1)),
    "sending_lease": (lambda w: swept_after(w, "take"), 300, "7 seconds", 7),
    "claimed_lease": (lambda w: swept_after(w, "claim"), 300, "7 seconds", 7),
    "expired_send_backoff": (wait_after_lost_send, timedelta(seconds=15), "1 minute", timedelta(minutes=1)),
    "dedup_ttl_hours": (hours_held_back, 168, 3, 3),
    "upload_policy": (files_waited_for, 1, Jsonb({"image": "url_allowed"}), 0),
    "media_max_bytes": (refused_for_its_size, 0, Jsonb({"telegram": {"video": 1_000_000}}), 1),
    "min_gap": (warned_of_a_neighbour, 0, "1 hour", 1),
    "receipt_ttl": (receipt_lifetime, timedelta(days=2), "1 day", timedelta(days=1)),
}


async def test_the_row_is_made_when_it_is_first_asked_for_and_only_once(workspace: Autopost) -> None:
    query = "select * from autopost.policies where workspace_id = %s"
    assert await workspace.sql(query, workspace.workspace) == []
    await workspace.push("hi")
    (first,) = await workspace.sql(query, workspace.workspace)
    await workspace.sql("select autopost.policy_of(%s)", workspace.workspace)
    assert await workspace.sql(query, workspace.workspace) == [first]


@pytest.mark.parametrize("column", EFFECTS)
async def test_a_rule_has_the_specifications_value_until_it_is_changed(workspace: Autopost, column: str) -> None:
    look, by_default, value, then = EFFECTS[column]
    other = type(workspace)(workspace.connection, workspace.workspace + "-other")
    await other.workspace_row()
    for one in (workspace, other):
        await one.policy(backoff_jitter=0)
    await other.policy(**{column: value})
    assert await look(workspace) == by_default
    assert await look(other) == then


async def test_the_jitter_is_a_share_of_the_wait(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=1, backoff_factor=1, max_attempts=30)
    found = await waits(workspace, tries=12)
    assert all(2 <= wait <= 4 for wait in found)
    assert max(found) > 2.4, "beyond the default of a fifth"


async def test_every_rule_has_a_test(workspace: Autopost) -> None:
    columns = await workspace.sql(
        "select column_name as name from information_schema.columns where table_schema = 'autopost' and table_name = 'policies'"
    )
    assert {row["name"] for row in columns} == {*EFFECTS, "backoff_jitter", "workspace_id", "updated_at"}


@pytest.mark.parametrize(
    ("column", "value"),
    [("claim_per_channel", 0), ("max_attempts", 0), ("backoff_factor", 0.5), ("backoff_jitter", 1.5), ("backoff_jitter", -0.1),
     ("disable_after_permanent_streak", 0), ("dedup_ttl_hours", -1), ("backoff_factor", 101), ("backoff_factor", "NaN")],
)  # fmt: skip
async def test_a_rule_without_sense_cannot_be_stored(workspace: Autopost, column: str, value: float) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        await workspace.policy(**{column: value})


DECLARED = [name for name, field in Policy.model_fields.items() if "timedelta" in str(field.annotation)]
DURATIONS = [*DECLARED, "not_ready_backoff", "not_ready_backoff_max"]


@pytest.mark.parametrize("beyond", [timedelta(days=999999999), timedelta(microseconds=-1)], ids=["huge", "negative"])
@pytest.mark.parametrize("column", DURATIONS)
async def test_a_duration_beyond_all_dates_or_before_now_can_neither_be_stored_nor_declared(
    workspace: Autopost, column: str, beyond: timedelta
) -> None:
    """It would fail each call of its workspace."""
    with pytest.raises(psycopg.errors.CheckViolation):
        await workspace.policy(**{column: beyond})
    if column in DECLARED:
        with pytest.raises(ValidationError, match=column):
            Policy.model_validate({column: beyond})


def test_what_is_too_long_is_told_in_days() -> None:
    declared = {"workspaces": [{"id": "w", "policy": {"pause_on_permanent_for": "400d"}}]}
    with pytest.raises(ConfigError, match="pause_on_permanent_for: must be less than or equal to 365 d$"):
        read_declaration(declared)


async def test_every_duration_that_can_be_declared_can_be_stored(workspace: Autopost) -> None:
    for end in ("ge", "le"):
        bounds = {
            name: getattr(bound, end)
            for name in DECLARED
            for bound in Policy.model_fields[name].metadata if hasattr(bound, end)
        }  # fmt: skip
        assert len(bounds) >= 9
        await workspace.policy(**Policy.model_validate(bounds).written())


async def test_every_duration_of_the_table_is_bounded(workspace: Autopost) -> None:
    columns = await workspace.sql(
        "select column_name as name from information_schema.columns"
        " where table_schema = 'autopost' and table_name = 'policies' and data_type = 'interval'"
    )
    assert {row["name"] for row in columns} == set(DURATIONS)
