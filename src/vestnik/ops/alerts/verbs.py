"""What one can ask and say of alerts; targets and webhooks are changed in autopost.alerting."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from vestnik.db.pool import Pool, call
from vestnik.errors import NotFound

Row = dict[str, Any]
LONGEST_SILENCE = timedelta(days=365)


async def list_alerts(
    pool: Pool, workspace_id: str | None = None, *, over_too: bool = False, limit: int = 200
) -> list[Row]:
    """What is on, the gravest first; then what was on, if that is asked for."""
    return await call(pool, _LIST, (workspace_id, workspace_id, over_too, limit))


async def ack(pool: Pool, workspace_id: str, alert: str, subject: str | None = None, *, actor: str) -> int:
    """It is not repeated until it grows or comes back. Returns how many; NotFound when none is on."""
    query = "select ops.ack_alerts(%s, %s, %s, %s) as n"
    acked = int((await call(pool, query, (workspace_id, actor, alert, subject)))[0]["n"])
    if not acked:
        of = f" of {subject}" if subject else ""
        raise NotFound(f"no alert {alert}{of} is on in workspace {workspace_id}", hint="vestnik alerts list")
    return acked


async def silence(
    pool: Pool,
    workspace_id: str,
    alert: str,
    subject: str | None = None,
    *,
    duration: timedelta,
    reason: str,
    actor: str,
) -> datetime:
    """Nobody is told of it until the moment that is returned. No duration ends a silence."""
    until = datetime.now(UTC) + max(timedelta(0), min(duration, LONGEST_SILENCE))
    query = "select ops.silence_alert(%s, %s, %s, %s, %s, %s)"
    await call(pool, query, (workspace_id, actor, alert, subject, until, reason))
    return until


async def list_silences(pool: Pool, workspace_id: str | None = None) -> list[Row]:
    query = (
        "select * from ops.alert_silences where until > now() and (%s::text is null or workspace_id = %s)"
        " order by workspace_id, alert, subject"
    )
    return await call(pool, query, (workspace_id, workspace_id))


async def list_targets(pool: Pool, workspace_id: str | None = None) -> list[Row]:
    rows = await call(pool, _TARGETS, (workspace_id, workspace_id))
    return [row | {"address": _shown(row["address"])} for row in rows]


async def list_webhooks(pool: Pool, workspace_id: str | None = None) -> list[Row]:
    rows = await call(pool, _WEBHOOKS, (workspace_id, workspace_id))
    return [row | {"url": _shown(row["url"])} for row in rows]


async def policy_of(pool: Pool, workspace_id: str) -> Row:
    rows = await call(pool, "select * from ops.alert_policy_of(%s)", (workspace_id,))
    return {name: value for name, value in rows[0].items() if name not in ("workspace_id", "updated_at")}


def _shown(address: str) -> str:
    """Of an address that is called only where it is: its path is often what opens it."""
    found = re.match(r"(https?://)(?:[^/@]*@)?([^/?#]*)/?(.?)", address)
    return f"{found[1]}{found[2]}/" + ("…" if found[3] else "") if found else address


_LIST = """
select a.workspace_id, a.alert, a.subject, a.severity, a.summary, a.raised_at, a.last_seen_at, a.cleared_at, a.raises,
       a.acked_by, a.acked_at, a.details,
       (select max(s.until) from ops.alert_silences s where s.workspace_id = a.workspace_id and s.alert = a.alert
        and s.subject in ('', a.subject) and s.until > now()) as silent_until
from ops.alerts a
where (%s::text is null or a.workspace_id = %s) and (%s or a.cleared_at is null)
order by a.cleared_at is not null, a.severity, a.cleared_at desc nulls first, a.raised_at desc, a.alert, a.subject limit %s
"""
_TARGETS = """
select workspace_id, target_id, kind, address, auth_ref, credential_workspace, language, min_severity, alerts, enabled,
       last_sent_at, failures, failing_since, next_try_at, last_error
from ops.alert_targets where %s::text is null or workspace_id = %s order by 1, 2
"""
_WEBHOOKS = """
select w.workspace_id, w.webhook_id, w.url, w.events, w.enabled, w.last_sent_at, w.failures, w.failing_since, w.next_try_at,
       w.last_error, (select count(*) from ops.webhook_secrets s where s.workspace_id = w.workspace_id
           and s.owner = 'webhook:' || w.webhook_id and coalesce(s.ends_at > now(), true)) as secrets
from ops.webhooks w where %s::text is null or w.workspace_id = %s order by 1, 2
"""
