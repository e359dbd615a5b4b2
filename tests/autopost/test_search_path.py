"""Every function names what it uses with its schema: it runs whatever the caller's search_path is."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from crowd import push_now, settle_now, take_now
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.place import ROLE
from vestnik.db.pool import Pool, call, make_pool
from vestnik.db.schema_files import read_functions
from vestnik.errors import NotFound

pytestmark = pytest.mark.pg16

SCHEMAS = ["autopost", "core", "ops"]
# A trigger, and one that always raises: neither is counted.
NEVER_CALLED = {"autopost.forbid_move", "core.forbid_change", "autopost.refuse_replacement"}


async def test_every_body_stands_without_a_search_path(db: AsyncConnection[DictRow]) -> None:
    async with db.transaction(force_rollback=True):
        await db.execute("set local search_path = pg_catalog")
        await db.execute("set local check_function_bodies = on")
        for file in read_functions().values():
            await db.execute(file.text.encode())


async def test_every_function_runs_without_a_search_path(server: EmbeddedServer, database: str, autopost: Any) -> None:
    """What PL/pgSQL finds out only when it runs."""
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        admin.execute(sql.SQL("alter role {} in database {} set track_functions = 'all'").format(
            sql.Identifier(ROLE), sql.Identifier(conninfo_to_dict(database)["dbname"])))  # fmt: skip
    await autopost.endpoint()
    for n in range(6):
        await autopost.channel(f"c{n}", rate_rps=[None, 5][n % 2], platform=["telegram", "max"][n % 3 == 0])
    async with make_pool(make_conninfo(database, options="-c search_path=pg_catalog"), max_size=1) as pool:
        await deliver_everything(pool)
        await plan_and_withdraw(pool)
        await show_everything(pool)
        await wait_for_files(pool)
        await read_a_source(pool)
        await work_aside(pool)
        await look_whether_it_holds(pool)
        await sign_in_and_configure(pool)
        await operate_by_hand(pool)
        await let_go_what_is_old(pool)
        await watch_over_it(pool)
        await call(pool, "select pg_stat_force_next_flush()")
        found = await call(
            pool,
            """select p.pronamespace::regnamespace || '.' || p.proname as name
               from pg_proc p join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
               left join pg_stat_user_functions s on s.funcid = p.oid
               where p.pronamespace::regnamespace::text = any (%s) and coalesce(s.calls, 0) = 0""",
            (SCHEMAS,),
        )
    assert {row["name"] for row in found} == NEVER_CALLED


async def deliver_everything(pool: Pool) -> None:
    await call(pool, "select autopost.ensure_event_partitions(now() + interval '30 days')")
    await call(
        pool,
        "select autopost.ingress_admit('w', 'door', 1), autopost.record_refusals('w', 'door', 'ingress_rate_limited', 'rate', 2)",
    )
    for raw in ('{"text": "<b>a</b>", "parse_mode": "HTML"}', '{"text": "b", "source_ref": "1"}'):
        await call(
            pool,
            "select * from autopost.enqueue_batch('w', 'door', 'webhook_push', array[%s]::jsonb[], p_gated => true)",
            (raw,),
        )
    await push_now(pool, "c", "c", "d")
    await call(
        pool,
        """select * from autopost.enqueue_messages_and_deliveries('w', null, 'push', '{"text": "\u0451  x", "tags": ["n"]}')""",
    )
    await call(pool, "select autopost.rotate_endpoint('w', 'door', 'another secret')")
    await call(pool, "select * from autopost.claim_deliveries('w', 'run', 2)")
    await call(pool, "select * from autopost.begin_sending('w', 'run', 1)")
    begun = await take_now(pool)
    errors: list[dict[str, Any]] = [
        {"category": "TRANSIENT", "code": "429", "retry_after_ms": 1, "scope_named": True},
        {"category": "PERMANENT", "code": "403", "scope": "channel"},
        {"category": "PERMANENT", "code": "401", "scope": "platform"},
        {"category": "TRANSIENT", "code": "500"},
    ]
    results = [{"delivery_id": str(row["delivery_id"]), "lease": row["lease"]} for row in begun]
    await settle_now(pool, [result | {"error": error} for result, error in zip(results, errors, strict=False)])
    await settle_now(pool, results)
    await call(pool, "select autopost.sweep_sending('w'), autopost.sweep_claimed('w'), autopost.sweep_receipts('w')")
    await call(pool, "select autopost.mark_sent('w', %s, 'm', p_lease => 1)", (begun[-1]["delivery_id"],))
    await call(
        pool, "select autopost.next_begin_at('w'), autopost.workspaces_with_work(''), autopost.remember_workspace('w')"
    )
    await call(
        pool,
        """select autopost.window_problem(w, 'Europe/Berlin'), autopost.next_open(w, 'Europe/Berlin', '2027-03-28 00:00Z'),
                  autopost.window_closes(w, null, '2027-03-28 10:00Z')
           from (values ('{"daily": [["09:00", "18:00"]], "except": {"2027-05-09": []}}'::jsonb)) x (w)""",
    )
    await call(pool, "select * from autopost.why_delivery('w', %s)", (begun[0]["delivery_id"],))
    await call(
        pool,
        "insert into autopost.events (workspace_id, id, ts, action) values ('w', gen_random_uuid(), '2031-01-01', 'enqueue')",
    )
    await call(pool, "select autopost.drain_default_partition()")


async def look_whether_it_holds(pool: Pool) -> None:
    for query in (
        "select * from autopost.forecast('w', '{\"text\": \"when?\"}')",
        "select autopost.nth_begin(null, now(), 2, '1 second')",
        """select autopost.leads_to('sending', array['{"action": "sent", "ts": "2027-03-01T00:00Z"}'::jsonb], '{sent}')""",
        "select autopost.prove_page('w'), autopost.check_page('w'), autopost.tell_findings('w', 'proof')",
    ):
        await call(pool, query)
    for deed in ("confirm", "resend"):
        await call(
            pool,
            "update autopost.deliveries set status = 'retry', next_retry_at = 'infinity', held_at = now(), attempt = 1"
            " where status in ('dead', 'failed_permanent')",
        )
        (row,) = await call(pool, "select delivery_id from autopost.deliveries where held_at is not null limit 1")
        await call(pool, f"select autopost.{deed}_delivery('w', 'me', 'why', %s)", (row["delivery_id"],))


async def plan_and_withdraw(pool: Pool) -> None:
    window = json.dumps({"daily": [["00:00", "24:00"]]})
    await call(
        pool,
        "update autopost.channels set window_mode = 'windowed', posting_window = %s, min_gap = '1 hour'",
        (window,),
    )
    for day in ("2027-01-02T09:00:00Z", "2027-01-02T09:10:00Z"):
        row = (await push(pool, {"text": f"later, at {day}", "scheduled_for": day}))[0]
        await call(
            pool,
            "select * from autopost.reschedule_deliveries('w', 'me', 'why', now() + interval '1 hour', %s)",
            (row["message_id"],),
        )
        await call(
            pool,
            "select * from autopost.replace_message('w', 'me', %s, %s)",
            (row["message_id"], f'{{"text": "not {day}"}}'),
        )
    with pytest.raises(NotFound):
        await call(
            pool,
            "select * from autopost.replace_message('w', 'me', %s, %s)",
            (row["message_id"], '{"text": "it was replaced before"}'),
        )
    await call(
        pool,
        "select * from autopost.schedule_conflicts('w'), autopost.cancel_deliveries('w', 'me', 'why', %s)",
        (row["message_id"],),
    )


async def show_everything(pool: Pool) -> None:
    html = '<b>{{text}}</b> <a href="{{link}}">{{#tags}}{{tags}}{{/tags}}</a> {{channel.title}} {{source.id}} {{own}}'
    for mode, body, parse_mode in (("HTML", html, "HTML"), ("Markdown", "**{{text}}**", "None")):
        query = "select autopost.save_template('w', 'form', %s, %s, %s)"
        await call(pool, query, (body, '{"own": "value"}', mode))
        await call(
            pool,
            "update autopost.channels set template_ref = 'form', settings = %s",
            ('{"utm": {"source": "vestnik"}, "long_text": "split", "large_image": "document"}',),
        )
        post = {
            "text": f"see https://e.example/{mode} and_more_", "links": ["https://e.example/x?y=1"], "parse_mode": parse_mode,
            "tags": ["n"], "source": {"id": [1]}, "buttons": [[{"text": "go", "url": "https://e.example/go"}]],
        }  # fmt: skip
        await call(pool, "select * from autopost.preview_post('w', %s)", (json.dumps(post),))
        await push(pool, post)


async def wait_for_files(pool: Pool) -> None:
    await call(pool, "update autopost.channels set template_ref = null")
    picture = {"type": "image", "url": "https://e.example/a.png", "caption": "<b>c</b>"}
    blob = {
        "blob_ref": "sha256:1",
        "origin_url": "media/1",
        "sha256": "1",
        "content_type": "image/png",
        "size_bytes": 5,
    }
    for n in range(3):
        row = (await push(pool, {"text": f"with a picture {n}", "parse_mode": "HTML", "media": [picture]}))[0]
        await call(pool, "select autopost.sweep_media('w')")
        if n < 2:
            await call(
                pool,
                "select autopost.media_arrived('w', %s, %s)",
                (row["message_id"], json.dumps([blob | {"place": 0}])),
            )
    await call(pool, "select autopost.media_failed('w', %s, 'gone')", (row["message_id"],))
    taken = "'w', 'sha256:1', 'telegram', 'bot', 'image'"
    await call(
        pool,
        f"select autopost.take_upload({taken}, gen_random_uuid(), '1 minute'), autopost.forget_upload({taken}, 'h')",
    )
    (row,) = await call(pool, "select delivery_id from autopost.deliveries limit 1")
    await call(
        pool,
        "select autopost.extend_sending('w', %s, 1), autopost.record_progress('w', %s, 1, 1, '{m}', '{0}')",
        (row["delivery_id"],) * 2,
    )


async def read_a_source(pool: Pool) -> None:
    await call(
        pool,
        "insert into autopost.pull_sources (workspace_id, source_id, kind, config_json) values ('w', 'feed', 'rss', '{}')",
    )
    items = [
        {"key": "1", "payload": {"text": "from a feed"}},
        {"key": "2", "problem": "no"},
        {"key": "3", "skip": "old"},
    ]
    run = "019a0000-0000-7000-8000-000000000000"
    await call(pool, "select autopost.begin_pull('w', 'feed')")
    await call(pool, "select * from autopost.commit_pull('w', 'feed', %s, %s, '{}')", (run, json.dumps(items)))
    await call(pool, "select autopost.end_pull('w', 'feed', %s), autopost.unseen_items('w', 'feed', '{1}')", (run,))
    await call(pool, "select autopost.remove_source('w', 'feed')")


async def work_aside(pool: Pool) -> None:
    await call(
        pool,
        """select ops.put_schedule('w', 's', '{"kind": "k", "every": 60}', now()),
                  ops.declare_kinds('w', '[{"kind": "k", "max_attempts": 1, "backoff_base": 1, "backoff_factor": 2, "backoff_max": 9,
                                            "backoff_jitter": 0, "concurrency": 3}]')""",
    )
    due = (await call(pool, "select * from ops.due_schedules()"))[0]
    await call(
        pool, "select ops.fire_schedule('w', 's', %s, %s + interval '1 minute', array[%s])", (due["next_at"],) * 3
    )
    await call(pool, "select ops.enqueue_job('w', 'k', '{}', key) from unnest('{a,b,c}'::text[]) key")
    jobs = await call(pool, "select * from ops.claim_jobs('w', 'me', '{k}', 3)")
    outcomes = ("done", "retry", "failed")
    results = [{"job_id": str(job["job_id"]), "lease": job["lease"], "outcome": how, "error": {"message": "token=abc"}}
               for job, how in zip(jobs, outcomes, strict=True)]  # fmt: skip
    await call(
        pool,
        "select ops.heartbeat_jobs('w', %s), ops.pause_kind('w', 'k'), ops.resume_kind('w', 'k')",
        (json.dumps(results),),
    )
    await call(pool, "select * from ops.settle_jobs('w', %s)", (json.dumps(results),))
    dead = results[2]["job_id"]
    await call(pool, "select ops.retry_job('w', %s), ops.run_job_now('w', %s), ops.cancel_job('w', %s)", (dead,) * 3)
    await call(pool, "select ops.sweep_jobs('w'), ops.prune_jobs('w'), ops.remove_schedule('w', 's')")


async def let_go_what_is_old(pool: Pool) -> None:
    keep = "'w', interval '30 days'"
    await call(pool, "select ops.believed_now()")
    await call(pool, f"select autopost.look_at_deliveries({keep}, null, 9), autopost.look_at_messages({keep}, null, 9)")
    await call(pool, f"select autopost.look_at_files({keep}, null, 9), autopost.prune_runs({keep})")
    await call(
        pool,
        f"select autopost.prune_events({keep}), autopost.prune_messages({keep}), autopost.prune_deliveries({keep})",
    )
    await call(pool, f"select autopost.reconcile_refs('w'), autopost.forget_files({keep}), autopost.prune_handles('w')")
    await call(pool, "select autopost.replace_origin('w', 'sha256:1', 'media/1', 'media/2')")
    await call(
        pool,
        "select autopost.drop_event_day(day, now() + interval '90 days') from autopost.old_event_days(now() + interval '90 days') day",
    )


async def operate_by_hand(pool: Pool) -> None:
    who = "'w', 'me', 'why'"
    for call_ in (
        "pause_channel({}, 'c1', '1 hour')",
        "resume_channel({}, 'c1')",
        "disable_group({}, 'bot')",
        "enable_group({}, 'bot')",
    ):
        await call(pool, f"select autopost.{call_.format(who)}")
    await call(
        pool, f"select * from autopost.requeue_deliveries({who}, array(select delivery_id from autopost.deliveries))"
    )
    await call(
        pool, "update autopost.deliveries set sending_started_at = now() - interval '1 day' where status = 'sending'"
    )
    await call(pool, "select * from autopost.release_stuck('w', 'me')")
    await call(
        pool,
        "insert into core.credential_bindings (workspace_id, platform, auth_ref, secret)"
        " values ('w', 'telegram', 'new', '') on conflict do nothing",
    )
    (drained,) = await call(pool, "select * from autopost.drain_channel('w', 'me', 'c1')")
    moments = (drained["drained_until"], drained["paused_before"])
    query = f"select * from autopost.switch_auth({who}, 'c1', 'new', 'group', %s, %s)"
    assert [row["outcome"] for row in await call(pool, query, moments)] == ["rotated"]


async def sign_in_and_configure(pool: Pool) -> None:
    await call(pool, "insert into core.operators (login, password_hash) values ('anna', 'x')")
    await call(
        pool,
        """select core.grant_role('w', 'me', 'anna', 'viewer'), core.take_role('w', 'me', 'anna', 'viewer'),
                  core.set_password('me', 'anna', 'y'), core.set_operator_enabled('me', 'anna', false),
                  core.try_gates('{a}', '{1}', '{1 hour}'), core.pass_gates('{a,b}'), core.prune_sign_ins()""",
    )
    await call(
        pool,
        """insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group)
           values ('w', 'unused', 'telegram', '@unused', 'unused', 'unused')""",
    )
    await call(
        pool,
        """insert into core.credential_bindings (workspace_id, platform, auth_ref, secret) values ('w', 'telegram', 'unused', 'x')""",
    )
    await call(
        pool,
        """select autopost.remove_channel('w', 'me', 'unused'), autopost.remove_credential('w', 'me', 'telegram', 'unused', false)""",
    )
    await call(pool, "select * from autopost.take_call('w', 'key', '1 minute')")
    await call(pool, "select autopost.put_call('w', 'key', now(), '{}')")


async def watch_over_it(pool: Pool) -> None:
    await call(
        pool,
        "insert into ops.webhooks (workspace_id, webhook_id, url, events) values ('w', 'h', 'http://h', '{channel.disabled}')",
    )
    await call(
        pool,
        "insert into autopost.events (workspace_id, id, channel_id, action) values ('w', gen_random_uuid(), 'c1', 'channel_disabled')",
    )
    await call(
        pool,
        """insert into ops.alert_targets (workspace_id, target_id, kind, address) values ('w', 't', 'email', 'a@e.org')""",
    )
    await call(
        pool,
        "select ops.put_webhook_secret('w', 'webhook:h', 'x'), ops.collect_failures('w'), ops.note_webhook('w', 'h', '{}'),"
        " autopost.monitor_workspace('w'), autopost.monitor_service(), autopost.health_snapshot('w'),"
        " ops.put_alert('w', 'disk', '', 'warning', 'a', null)",
    )
    await call(
        pool,
        "select ops.take_notices('w', 't'), ops.ack_alerts('w', 'me', 'disk'), ops.clear_alert('w', 'disk', ''),"
        " ops.silence_alert('w', 'me', 'disk', '', now() + interval '1 hour', 'why')",
    )
    await call(pool, "select ops.settle_notices('w', 't', 1, '[]')")


async def push(pool: Pool, payload: dict[str, Any]) -> list[DictRow]:
    query = "select * from autopost.enqueue_messages_and_deliveries('w', null, 'push', %s)"
    return await call(pool, query, (json.dumps(payload),))
