"""Checks of the work itself: what stands still, what was given up, and whether anybody is there to do it."""

from __future__ import annotations

from vestnik.doctor.findings import Check, Finding, Looked, Patient, counted, fail, ok, skipped, warn

OVERDUE = 120  # seconds that something may be due, with no gate in its way, before it is odd
LISTENERS = {"dispatcher": "vestnik dispatcher listen", "jobs": "vestnik jobs listen"}


async def sending(patient: Patient) -> Looked:
    rows = await patient.rows(_STUCK, patient.workspace_id)
    return [
        warn(
            f"{counted(row['n'], 'delivery', 'deliveries')} in {row['status']} for longer than the lease",
            f"a dispatcher takes them back by itself; at once: vestnik release-stuck {row['workspace_id']}",
            workspace_id=row["workspace_id"],
            subject=row["status"],
        )
        for row in rows
    ] or ok("nothing is stuck in sending or claimed")


async def waiting(patient: Patient) -> Looked:
    """Due, with no gate in its way, and not taken. One of a workspace stands for all."""
    found: dict[str, Finding] = {}
    for row in await patient.rows(_OVERDUE, patient.workspace_id, OVERDUE):
        workspace_id, delivery_id = row["workspace_id"], row["delivery_id"]
        if workspace_id in found:
            continue
        why = (await patient.rows("select gate from autopost.why_delivery(%s, %s)", workspace_id, delivery_id))[0]
        if why["gate"] == "none":
            said = f"a delivery is due for {row['seconds'] // 60} minutes, and nobody takes it"
            fix = f"vestnik why {delivery_id}; does a dispatcher run?"
            found[workspace_id] = fail(said, fix, workspace_id=workspace_id, subject=str(delivery_id))
    return list(found.values()) or ok("nothing is due that nobody takes")


async def processes(patient: Patient) -> Looked:
    """Who listens is alive: its connection says so."""
    rows = await patient.rows(
        "select application_name as name, count(*)::integer as n from pg_stat_activity"
        " where datname = current_database() and application_name = any (%s) group by 1",
        list(LISTENERS.values()),
    )
    alive = {row["name"]: row["n"] for row in rows}
    work = (await patient.rows(_WORK))[0]
    found = []
    for role, name in LISTENERS.items():
        if name in alive:
            found.append(ok(counted(alive[name], "runs", "run"), subject=role))
        elif work[role]:
            fix = f"vestnik up, or vestnik run {role}"
            found.append(fail("none runs, and there is work for it", fix, subject=role))
        else:
            found.append(
                warn("none runs; there is nothing to do now", f"vestnik up, or vestnik run {role}", subject=role)
            )
    return found


async def failures(patient: Patient) -> Looked:
    rows = await patient.rows(_GIVEN_UP, patient.workspace_id)
    return [
        warn(
            f"{counted(row['n'], 'delivery', 'deliveries')} of the last day ended {row['status']}, lately for: {row['code']}",
            f"vestnik events {row['workspace_id']} --errors --minutes 1440; once the cause is gone:"
            f" vestnik requeue -w {row['workspace_id']} --status {row['status']}{_AGAIN[row['status']]}",
            workspace_id=row["workspace_id"],
            subject=row["status"],
        )
        for row in rows
    ] or ok("nothing was given up in the last day")


async def channels(patient: Patient) -> Looked:
    rows = await patient.rows(_SHUT, patient.workspace_id)
    return [
        warn(
            f"{counted(row['disabled'], 'channel')} disabled, {row['paused']} paused after refusals, such as {row['example']}",
            f"put right what vestnik events {row['workspace_id']} --errors --minutes 1440 says, then:"
            f" vestnik resume {row['workspace_id']} {row['example']}",
            workspace_id=row["workspace_id"],
        )
        for row in rows
    ] or ok("no channel is disabled or paused after refusals")


async def jobs(patient: Patient) -> Looked:
    rows = await patient.rows(_DEAD_JOBS, patient.workspace_id)
    return [
        warn(
            f"{counted(row['n'], 'dead letter')} of {row['kind']}",
            f"vestnik jobs errors -w '{row['workspace_id']}'; then: vestnik jobs retry ID",
            workspace_id=row["workspace_id"],
            subject=row["kind"],
        )
        for row in rows
    ] or ok("no job was given up")


async def alerts(patient: Patient) -> Looked:
    if await patient.value("select to_regclass('ops.alerts') is null"):
        return skipped("this schema has no alerts")
    rows = await patient.rows(_ALERTS, patient.workspace_id)
    return [
        warn(
            f"on since {row['raised_at']:%Y-%m-%d %H:%M}: {row['summary']}",
            "put its cause right, then it goes by itself; vestnik alerts list",
            workspace_id=row["workspace_id"],
            subject=row["alert"],
        )
        for row in rows
    ] or ok("no alert is on")


WORK = (
    Check("work.sending", sending),
    Check("work.waiting", waiting),
    Check("work.failures", failures),
    Check("work.channels", channels),
    Check("work.jobs", jobs),
    Check("work.alerts", alerts),
)
PROCESSES = (Check("work.processes", processes),)

# A minute more than the lease: the sweep may be on its way.
_STUCK = """
select d.workspace_id, s.status, count(*)::integer as n
from core.workspaces w
left join autopost.policies p on p.workspace_id = w.workspace_id
cross join (values ('sending'), ('claimed')) s (status)
cross join lateral (
    select x.workspace_id from autopost.deliveries x
    where x.workspace_id = w.workspace_id and s.status = 'sending' and x.status = 'sending'
      and x.sending_started_at < now() - coalesce(p.sending_lease, '300 seconds') - interval '1 minute'
    union all
    select x.workspace_id from autopost.deliveries x
    where x.workspace_id = w.workspace_id and s.status = 'claimed' and x.status = 'claimed' and x.not_before <= now()
      and x.claimed_at < now() - coalesce(p.claimed_lease, '300 seconds') - interval '1 minute'
) d
where w.workspace_id = coalesce(%s, w.workspace_id)
group by 1, 2 order by 1, 2 limit 50
"""

_OVERDUE = """
select w.workspace_id, d.delivery_id, extract(epoch from now() - d.not_before)::integer as seconds
from core.workspaces w
cross join lateral (
    select x.delivery_id, x.not_before from autopost.channels c
    cross join lateral (
        select q.delivery_id, q.not_before from autopost.deliveries q
        where q.workspace_id = c.workspace_id and q.channel_id = c.channel_id and q.status = 'queued'
        order by q.not_before limit 1) x
    where c.workspace_id = w.workspace_id and c.enabled and coalesce(c.paused_until <= now(), true)
      and coalesce(c.cooldown_until <= now(), true) and coalesce(c.next_allowed_at <= now(), true)
    order by x.not_before limit 5) d
where w.status = 'active' and w.workspace_id = coalesce(%s, w.workspace_id)
  and d.not_before < now() - make_interval(secs => %s)
order by d.not_before limit 50
"""

_WORK = """
select exists (select from autopost.workspaces_with_work('', 1)) as dispatcher,
       exists (select from ops.jobs j where j.status in ('waiting', 'retry') and j.run_at <= now()) as jobs
"""

_AGAIN = {"dead": "", "failed_permanent": "; what its channel was refused for goes by a new push only"}

_GIVEN_UP = """
select w.workspace_id, s.status, f.n, f.code
from core.workspaces w
cross join (values ('dead'), ('failed_permanent')) s (status)
cross join lateral (
    select count(*)::integer as n, (array_agg(coalesce(d.last_error ->> 'code', '?') order by d.updated_at desc))[1] as code
    from autopost.deliveries d
    where d.workspace_id = w.workspace_id and d.status = s.status and d.status in ('failed_permanent', 'dead')
      and d.updated_at > now() - interval '1 day' and coalesce(d.last_error ->> 'code', '') <> 'cancelled') f
where w.workspace_id = coalesce(%s, w.workspace_id) and f.n > 0
order by 1, 2 limit 50
"""

_SHUT = """
select c.workspace_id, count(*) filter (where not c.enabled)::integer as disabled,
       count(*) filter (where c.enabled)::integer as paused, min(c.channel_id) as example
from autopost.channels c
where c.workspace_id = coalesce(%s, c.workspace_id) and c.error_streak > 0 and (not c.enabled or c.paused_until > now())
group by 1 order by 1 limit 50
"""

_DEAD_JOBS = """
select j.workspace_id, j.kind, count(*)::integer as n from ops.jobs j
where j.status = 'dead' and j.workspace_id = coalesce(%s, j.workspace_id)
group by 1, 2 order by 1, 2 limit 50
"""

_ALERTS = """
select a.workspace_id, a.alert, a.summary, a.raised_at from ops.alerts a
where a.cleared_at is null and a.workspace_id = coalesce(%s, a.workspace_id)
order by a.severity, a.raised_at limit 50
"""
