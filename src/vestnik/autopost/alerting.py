"""Who is told of what: alert targets, their policy, and failure webhooks, made true as they are declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from vestnik.autopost.rows import Change, Row, make_true
from vestnik.db.pool import Connection, Pool, retrying
from vestnik.errors import NotFound
from vestnik.ops.alerts.declared import AlertPolicy, Alerts, AlertTarget, NamedWebhook, ServiceAlerts, Webhook
from vestnik.ops.alerts.notifier import Notifier
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.webhooks.signing import new_secret

OVERLAP = timedelta(days=1)  # for how long an old secret signs beside a new one
_AFRESH = "failures = 0, failing_since = null, next_try_at = null, last_error = null"


Made = tuple[Change, str | None]
"""What changed, and the secret that was made for it, which is shown this once."""


@dataclass(frozen=True, slots=True)
class AlertDesk:
    """Changes of one thing each, by somebody whose name goes on record."""

    pool: Pool
    box: SecretBox
    notifier: Notifier

    async def put_policy(self, workspace_id: str, policy: AlertPolicy, *, actor: str) -> None:
        async def work(connection: Connection) -> None:
            await _noted(connection, workspace_id, actor, await _put_policy(connection, workspace_id, policy.written()))

        await retrying(self.pool, work)

    async def put_target(self, workspace_id: str, target_id: str, target: AlertTarget, *, actor: str) -> str | None:
        """Make or replace; returns the secret that was made for it."""

        async def work(connection: Connection) -> str | None:
            change, secret = await _put_target(connection, self.box, workspace_id, target_id, target.model_dump(), None)
            await _noted(connection, workspace_id, actor, change)
            return secret

        return await retrying(self.pool, work)

    async def put_webhook(self, workspace_id: str, webhook_id: str, webhook: Webhook, *, actor: str) -> str | None:
        async def work(connection: Connection) -> str | None:
            change, secret = await _put_webhook(
                connection, self.box, workspace_id, webhook_id, webhook.model_dump(), None
            )
            await _noted(connection, workspace_id, actor, change)
            return secret

        return await retrying(self.pool, work)

    async def rotate_secret(self, workspace_id: str, owner: str, *, overlap: timedelta = OVERLAP, actor: str) -> str:
        """``owner``: ``webhook:ID`` or ``target:ID``. The old secret signs beside the new one for ``overlap``."""
        secret = new_secret()

        async def work(connection: Connection) -> None:
            found = await connection.execute(_OWNERS, (workspace_id, owner, workspace_id, owner))
            if not await found.fetchall():
                raise NotFound(f"no webhook {owner.partition(':')[2]} in workspace {workspace_id}")
            await _put_secret(connection, self.box, workspace_id, owner, secret, overlap)
            query = "select core.note_change(%s, %s, 'webhook_secret_rotated', %s)"
            await connection.execute(query, (workspace_id, actor, owner))

        await retrying(self.pool, work)
        return secret

    async def remove(self, workspace_id: str, owner: str, *, actor: str) -> None:
        """``owner``: ``webhook:ID`` or ``target:ID``."""
        what, _, name = owner.partition(":")
        table, key, words = _TABLES[what]

        async def work(connection: Connection) -> None:
            gone = f"delete from ops.{table} where workspace_id = %s and {key} = %s returning 1"
            if not await (await connection.execute(gone.encode(), (workspace_id, name))).fetchall():
                raise NotFound(f"no {words} {name} in workspace {workspace_id}")
            secrets = "delete from ops.webhook_secrets where workspace_id = %s and owner = %s"
            await connection.execute(secrets, (workspace_id, owner))
            query = "select core.note_change(%s, %s, 'alerting_removed', %s)"
            await connection.execute(query, (workspace_id, actor, f"{words} {workspace_id}/{name}"))

        await retrying(self.pool, work)


async def apply_alerts(
    connection: Connection, box: SecretBox, workspace_id: str, alerts: Alerts | ServiceAlerts
) -> list[Made]:
    """In the caller's transaction."""
    done: list[tuple[Change | None, str | None]] = [
        (await _put_policy(connection, workspace_id, alerts.policy.written()), None)
    ]
    for target in alerts.targets:
        columns = {name: value for name, value in target.written().items() if name not in ("id", "secret")}
        done.append(await _put_target(connection, box, workspace_id, target.id, columns, target.secret))
    return [(change, secret) for change, secret in done if change]


async def apply_webhooks(
    connection: Connection, box: SecretBox, workspace_id: str, webhooks: Sequence[NamedWebhook]
) -> list[Made]:
    """In the caller's transaction."""
    done = []
    for webhook in webhooks:
        columns = {name: value for name, value in webhook.written().items() if name not in ("id", "secret")}
        columns = {"events": webhook.events} | columns
        done.append(await _put_webhook(connection, box, workspace_id, webhook.id, columns, webhook.secret))
    return [(change, secret) for change, secret in done if change]


async def _put_policy(connection: Connection, workspace_id: str, columns: dict[str, Any]) -> Change | None:
    await connection.execute("select ops.alert_policy_of(%s)", (workspace_id,))
    key = {"workspace_id": workspace_id}
    row = Row(f"alert policy of {workspace_id}", ("ops", "alert_policies"), key, columns)
    return await make_true(connection, row)


async def _put_target(
    connection: Connection,
    box: SecretBox,
    workspace_id: str,
    target_id: str,
    columns: dict[str, Any],
    secret: str | None,
) -> tuple[Change | None, str | None]:
    key = {"workspace_id": workspace_id, "target_id": target_id}
    row = Row(f"alert target {workspace_id}/{target_id}", ("ops", "alert_targets"), key, columns)
    change = await make_true(connection, row)
    if change and change.before:
        query = f"update ops.alert_targets set {_AFRESH} where workspace_id = %s and target_id = %s"
        await connection.execute(query.encode(), (workspace_id, target_id))
    if columns["kind"] != "webhook":
        return change, None
    return await _with_secret(connection, box, workspace_id, f"target:{target_id}", row.what, change, secret)


async def _put_webhook(
    connection: Connection,
    box: SecretBox,
    workspace_id: str,
    webhook_id: str,
    columns: dict[str, Any],
    secret: str | None,
) -> tuple[Change | None, str | None]:
    key = {"workspace_id": workspace_id, "webhook_id": webhook_id}
    row = Row(f"webhook {workspace_id}/{webhook_id}", ("ops", "webhooks"), key, columns)
    change = await make_true(connection, row)
    if change and change.before:
        query = f"update ops.webhooks set {_AFRESH} where workspace_id = %s and webhook_id = %s"
        await connection.execute(query.encode(), (workspace_id, webhook_id))
    return await _with_secret(connection, box, workspace_id, f"webhook:{webhook_id}", row.what, change, secret)


async def _with_secret(
    connection: Connection,
    box: SecretBox,
    workspace_id: str,
    owner: str,
    what: str,
    change: Change | None,
    declared: str | None,
) -> tuple[Change | None, str | None]:
    """One that is declared, unless it signs already; else one that is made, when there is none."""
    found = await connection.execute("select ops.webhook_secrets_of(%s, %s) as sealed", (workspace_id, owner))
    known = [row["sealed"] for row in await found.fetchall()]
    if known and (declared is None or box.unlock(known[0]) == declared):
        return change, None
    made = declared or new_secret()
    await _put_secret(connection, box, workspace_id, owner, made, OVERLAP)
    return change or Change(what, {"secret": "(secret)"}, {"secret": "(secret)"}), None if declared else made


async def _put_secret(
    connection: Connection, box: SecretBox, workspace_id: str, owner: str, secret: str, overlap: timedelta
) -> None:
    query = "select ops.put_webhook_secret(%s, %s, %s, %s)"
    await connection.execute(query, (workspace_id, owner, box.lock(secret), overlap))


async def _noted(connection: Connection, workspace_id: str, actor: str, change: Change | None) -> None:
    """Without addresses: a webhook's may hold a token."""
    if change:
        details: Mapping[str, Any] = {"changed": sorted(change.after)}
        query = "select core.note_change(%s, %s, %s, %s, %s)"
        action = "alerting_changed" if change.before else "alerting_added"
        await connection.execute(query, (workspace_id, actor, action, change.what, Jsonb(details)))


_TABLES = {
    "webhook": ("webhooks", "webhook_id", "webhook"),
    "target": ("alert_targets", "target_id", "alert target"),
}
_OWNERS = """
select 1 from ops.webhooks where workspace_id = %s and 'webhook:' || webhook_id = %s
union all
select 1 from ops.alert_targets where workspace_id = %s and 'target:' || target_id = %s and kind = 'webhook'
"""
