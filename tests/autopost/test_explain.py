"""Every query that an index of the specification serves is served here too, and the hot path never reads a table.

Plans are looked at, not clocks. docs/decisions/0002-indexes.md says which index stands for which.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

pytestmark = pytest.mark.pg16

CHANNELS = 60
SENT = 15_000  # of them, and 3,000 in front of a paused channel

FILL = f"""
insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps, tags)
select 'w', 'c' || lpad(n::text, 3, '0'), 'telegram', n::text, 'bot', 'bot', null, array['t' || n]
from generate_series(1, {CHANNELS}) n;
insert into autopost.messages (workspace_id, message_id, content_hash, payload, tags, first_seen_trace_id, first_ingest_run_id,
    last_seen_at, last_ingest_run_id, created_at)
select 'w', core.uuid7(t), md5(n::text), '{{"type": "text", "text": "x"}}', array['t' || n % 50], core.uuid7(t), core.uuid7(t), t, core.uuid7(t), t
from generate_series(1, 300) n, lateral (select now() - n * interval '1 minute') x (t);
insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, status, attempt, lease,
    settled_lease, sent_at, not_before, created_at, next_retry_at, sending_started_at, claimed_at)
select 'w', core.nth_uuid(b.base, row_number() over ()), m.message_id, c.channel_id, m.content_hash, s.status, 1, 1, 1,
       case s.status when 'sent' then m.created_at end, m.created_at, m.created_at,
       case s.status when 'retry' then now() end, case s.status when 'sending' then now() end, case s.status when 'claimed' then now() end
from autopost.messages m, autopost.channels c, (select core.uuid7(now()) as base offset 0) b,
     lateral (select case when c.channel_id = 'c001' then 'queued' when hashtext(m.content_hash || c.channel_id) % 400 = 0
         then (array['retry', 'sending', 'claimed', 'dead', 'failed_permanent', 'deduped'])[1 + abs(hashtext(m.content_hash)) % 6]
         else 'sent' end) s (status);
update autopost.channels set paused_until = 'infinity' where channel_id = 'c001';
insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result)
select 'w', core.nth_uuid(b.base, row_number() over ()), d.delivery_id, d.message_id, d.channel_id, d.created_at,
       a.action, 1, case when d.status in ('dead', 'failed_permanent') then 'error' else 'ok' end
from autopost.deliveries d, (select core.uuid7(now()) as base offset 0) b,
     lateral (values ('enqueue'), (case d.status when 'dead' then 'dead_letter' when 'sent' then 'sent' else 'send_attempt' end)) a (action);
"""

# What the specification's indexes are for, as queries that people and programs write.
QUERIES = {
    "due retries of the workspace": "select * from deliveries where workspace_id = 'w' and status = 'retry' and next_retry_at <= now()",
    "what may go now": "select * from deliveries where workspace_id = 'w' and status = 'queued' and not_before <= now() limit 100",
    "retries that may go now": "select * from deliveries where workspace_id = 'w' and status = 'retry' and not_before <= now() and next_retry_at <= now()",
    "how many are stuck in sending": "select count(*) from deliveries where workspace_id = 'w' and status = 'sending' and sending_started_at < now()",
    "dead letters": "select * from deliveries where workspace_id = 'w' and status = 'dead'",
    "sent within the window": "select 1 from deliveries where workspace_id = 'w' and channel_id = 'c007' and hash_version = 1"
    " and content_hash = md5('7') and status = 'sent' and sent_at is not null and sent_at >= now() - interval '7 days'",
    "in flight": "select 1 from deliveries where workspace_id = 'w' and channel_id = 'c007' and hash_version = 1"
    " and content_hash = md5('7') and status in ('queued', 'claimed', 'sending', 'retry') and created_at >= now() - interval '1 day'",
    "where the content went": "select * from deliveries where workspace_id = 'w' and channel_id = 'c007' and hash_version = 1"
    " and content_hash = md5('7') and status in ('sent', 'deduped')",
    "one delivery": "select * from deliveries where workspace_id = 'w' and delivery_id = (select core.uuid7(now()))",
    "the latest events": "select * from events where workspace_id = 'w' order by ts desc limit 100",
    "events of half an hour": "select * from events where workspace_id = 'w' and ts >= now() - interval '3 minutes' order by ts desc",
    "errors of half an hour": "select * from events where workspace_id = 'w' and ts >= now() - interval '30 minutes' and result = 'error' order by ts desc",
    "dead letters as events": "select * from events where workspace_id = 'w' and action = 'dead_letter' order by ts desc limit 50",
    "the latest of a frequent action": "select * from events where workspace_id = 'w' and action = 'sent' order by ts desc limit 50",
    "the story of a delivery": "select * from events where workspace_id = 'w' and delivery_id = (select core.uuid7(now())) order by ts desc",
    "the story of a message": "select * from events where workspace_id = 'w' and message_id = (select core.uuid7(now())) order by ts desc",
    "the story of a channel": "select * from events where workspace_id = 'w' and channel_id = 'c007' order by ts desc limit 100",
    "a message by its content": "select * from messages where workspace_id = 'w' and hash_version = 1 and content_hash = md5('7')",
}


@pytest.fixture
async def crowded(autopost: Any) -> Any:
    """A workspace with a past: the planner has seen it and the event log is summarised."""
    await autopost.connection.execute(FILL.encode())
    await autopost.sql("vacuum analyze autopost.deliveries")
    await autopost.sql("vacuum analyze autopost.events")
    await autopost.sql("analyze autopost.messages")
    await autopost.sql("select brin_summarize_new_values(c.oid) from pg_class c join pg_am a on a.oid = relam"
                       " where amname = 'brin' and relkind = 'i'")  # fmt: skip
    return autopost


async def test_every_query_of_the_specifications_indexes_finds_one(crowded: Any) -> None:
    reading_all = {}
    for name, query in QUERIES.items():
        plan = "\n".join(row["QUERY PLAN"] for row in await crowded.sql(f"explain {query}"))
        if re.search(r"Seq Scan on (deliveries|events|messages)", plan):
            reading_all[name] = plan
    assert reading_all == {}


async def test_a_message_can_be_deleted_and_a_channel_listed_without_reading_all(crowded: Any) -> None:
    plan = "\n".join(
        r["QUERY PLAN"] for r in await crowded.sql("explain select * from channels where tags && array['t7']")
    )
    assert "channels" in plan


async def test_a_paused_backlog_costs_the_claim_nothing(crowded: Any) -> None:
    """300 rows of a paused channel, then 30,000: the claim touches as many pages, give or take the index's height."""
    crowded.now = datetime.now(UTC)
    few = await _pages_of_a_claim(crowded)
    await crowded.sql(
        "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, created_at)"
        " select 'w', core.nth_uuid(b.base, n), m.message_id, 'c001', md5(n::text), now() - interval '1 day'"
        " from generate_series(1, 30000) n, (select core.uuid7(now()) as base offset 0) b,"
        " (select message_id from autopost.messages limit 1) m"
    )
    await crowded.sql("vacuum analyze autopost.deliveries")
    many = await _pages_of_a_claim(crowded)
    assert many <= few + 60, (few, many)


async def _pages_of_a_claim(autopost: Any) -> int:
    for _ in range(3):  # the first calls plan
        await autopost.sql("select * from autopost.claim_and_begin('w', 'r', 10, %s)", autopost.now)
    plan = await autopost.sql(
        "explain (analyze, buffers, format json) select * from autopost.claim_and_begin('w', 'r', 10, %s)", autopost.now
    )
    top = plan[0]["QUERY PLAN"][0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


async def test_on_its_first_day_a_workspace_checks_its_foreign_keys_by_their_keys(autopost: Any) -> None:
    """Without statistics all indexes that begin with the workspace look alike, and the plan of the first check is kept."""
    for n in range(30):
        await autopost.channel(f"c{n}")
    for n in range(30):
        await autopost.push(f"post {n}")
    await autopost.sql("select pg_stat_force_next_flush()")
    read = await autopost.sql(
        "select relname, sum(idx_tup_read)::integer as rows from pg_stat_user_indexes"
        " where relname in ('channels', 'messages') group by 1"
    )
    # 900 deliveries, one row of each table per check; the fan-out itself reads every channel once for each post.
    assert {row["relname"]: row["rows"] < 5000 for row in read} == {"channels": True, "messages": True}, read
