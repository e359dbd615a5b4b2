"""Every table, column, default, key and check that the specification gives is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

# Per table its columns, in the words of the specification: "type", "type?" when it may be null, "type=default".
TABLES = {
    "workspaces": "workspace_id text, name text, status text='active', created_at timestamptz=now()",
    "workspace_endpoints": "workspace_id text, endpoint_id text, kind text, secret_hash text, enabled boolean=true,"
    " ingress_rps double=5, max_payload_bytes integer=262144, hash_drop_window_sec integer=10, meta jsonb='{}',"
    " created_at timestamptz=now(), updated_at timestamptz=now()",
    "channels": "workspace_id text, channel_id text, platform text, target_id text, auth_ref text, rate_group text,"
    " enabled boolean=true, title text?, send_mode text='mixed', rate_rps double?=1, max_parallel integer=1,"
    " next_allowed_at timestamptz?, paused_until timestamptz?, timezone text?, window_mode text='immediate',"
    " posting_window jsonb?, dedup_ttl_hours integer?=168, error_streak integer=0, settings jsonb='{}', tags text[]?,"
    " route_filter jsonb?, template_ref text?, created_at timestamptz=now(), updated_at timestamptz=now()",
    "channel_auth": "workspace_id text, channel_id text, auth_ref text, rotated_at timestamptz?, updated_at timestamptz=now()",
    "credential_bindings": "workspace_id text, auth_ref text, platform text, secret_ref text='stored', rotated_at timestamptz?,"
    " updated_at timestamptz=now()",
    "platform_limits": "workspace_id text, platform text, rate_group text, rate_rps double?, next_allowed_at timestamptz?,"
    " updated_at timestamptz=now()",
    "messages": "workspace_id text, message_id uuid, hash_version integer=1, content_hash text, normalization_version integer=1,"
    " payload jsonb, tags text[]='{}', source jsonb?, source_ref text?, first_seen_trace_id uuid, first_ingest_run_id uuid,"
    " last_seen_at timestamptz, last_ingest_run_id uuid, seen_count bigint=1, created_at timestamptz=now()",
    "media_origin": "workspace_id text, blob_ref text, origin_url text, sha256 text?, content_type text?, size_bytes bigint?,"
    " last_seen_at timestamptz=now(), ref_count bigint=0, created_at timestamptz=now()",
    "media_blobs": "workspace_id text, blob_ref text, provider text, file_id text?, url text?, expires_at timestamptz?,"
    " meta jsonb?, created_at timestamptz=now(), updated_at timestamptz=now()",
    "deliveries": "workspace_id text, delivery_id uuid, message_id uuid, channel_id text, hash_version integer=1,"
    " content_hash text, not_before timestamptz=now(), scheduled_for timestamptz?, status text='queued', attempt integer=0,"
    " next_retry_at timestamptz?, provider_message_id text?, sent_at timestamptz?, last_error jsonb?, rendered_text text?,"
    " render_meta jsonb='{}', template_version text?, trace_id uuid?, enqueue_batch_id uuid?, claimed_at timestamptz?,"
    " claim_token text?, sending_started_at timestamptz?, created_at timestamptz=now(), updated_at timestamptz=now()",
    "events": "workspace_id text, id uuid, delivery_id uuid?, message_id uuid?, channel_id text?, ts timestamptz=now(),"
    " action text, attempt integer=0, result text='ok', error jsonb?, payload_ref text?, meta jsonb?",
    "pull_sources": "workspace_id text, source_id text, kind text, config_json jsonb='{}', enabled boolean=true,"
    " created_at timestamptz=now()",
    "pull_cursors": "workspace_id text, source_id text, cursor_json jsonb='{}', updated_at timestamptz=now()",
    "ingest_runs": "workspace_id text, run_id uuid, kind text, started_at timestamptz=now(), finished_at timestamptz?,"
    " stats_json jsonb='{}'",
    "ingress_receipts": "workspace_id text, endpoint_id text, endpoint_kind text, source_ref text?, payload_hash text,"
    " received_at timestamptz=now(), expires_at timestamptz",
    "templates": "workspace_id text, template_id text, version integer, body text, defaults jsonb='{}', created_at timestamptz=now()",
    "dispatcher_state": "workspace_id text, workspace_id_last text=''",
}  # fmt: skip

KEYS = {
    "workspaces": "workspace_id",
    "workspace_endpoints": "workspace_id, endpoint_id",
    "channels": "workspace_id, channel_id",
    "channel_auth": "workspace_id, channel_id",
    "platform_limits": "workspace_id, platform, rate_group",
    "messages": "workspace_id, message_id",
    "media_origin": "workspace_id, blob_ref",
    "media_blobs": "workspace_id, blob_ref, provider, auth_ref, sent_as",
    "deliveries": "workspace_id, delivery_id",
    "events": "workspace_id, ts, id",
    "pull_sources": "workspace_id, source_id",
    "pull_cursors": "workspace_id, source_id",
    "ingest_runs": "workspace_id, run_id",
}

UNIQUE = {
    "channels": ["(workspace_id, platform, target_id)"],
    "messages": ["(workspace_id, hash_version, content_hash)"],
    "workspace_endpoints": ["(kind, secret_hash) WHERE enabled"],
    "ingress_receipts": ["(workspace_id, endpoint_id, source_ref) WHERE (source_ref IS NOT NULL)"],
}

REFERENCES = {
    "workspace_endpoints": [("workspace_id", "workspaces")],
    "channels": [("workspace_id", "workspaces")],
    "channel_auth": [("workspace_id, channel_id", "channels")],
    "messages": [("workspace_id", "workspaces")],
    "deliveries": [("workspace_id, channel_id", "channels"), ("workspace_id, message_id", "messages")],
    "pull_cursors": [("workspace_id, source_id", "pull_sources")],
}

# The columns that an index of the table must begin with. Those of deliveries and events are fewer than the specification
# lists; that its queries are fast all the same is tested by their plans (test_explain.py).
INDEXED = {
    "workspace_endpoints": ["kind, secret_hash"],
    "channels": ["tags"],
    "messages": ["workspace_id, created_at", "workspace_id, hash_version, content_hash", "tags"],
    "ingress_receipts": ["workspace_id, endpoint_id, payload_hash, received_at", "expires_at"],
}


@pytest.mark.parametrize("table", TABLES)
async def test_columns(workspace: Autopost, table: str) -> None:
    rows = await workspace.sql(
        "select a.attname as name, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as required,"
        " pg_get_expr(d.adbin, d.adrelid) as value from pg_attribute a"
        " left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum where a.attrelid = %s::regclass and a.attnum > 0",
        table,
    )
    long_names = {"timestamptz": "timestamp with time zone", "double": "double precision"}
    found = {row["name"]: row for row in rows}
    for wanted in TABLES[table].split(", "):
        name, spec = wanted.strip().split(" ", 1)
        kind, nullable, default = re.fullmatch(r"([\w\[\]]+)(\?)?(?:=(.*))?", spec).groups()  # type: ignore[union-attr]
        column = found[name]
        assert column["type"] == long_names.get(kind, kind), name
        assert column["required"] is not bool(nullable), name
        value = column["value"] and re.sub(r"::[\w\[\] ]+$", "", column["value"])
        assert value == default, name


@pytest.mark.parametrize("table", KEYS)
async def test_primary_keys(workspace: Autopost, table: str) -> None:
    assert await constraints(workspace, table, "p") == [f"PRIMARY KEY ({KEYS[table]})"]


@pytest.mark.parametrize("table", UNIQUE)
async def test_unique_keys(workspace: Autopost, table: str) -> None:
    rows = await workspace.sql(
        "select pg_get_indexdef(indexrelid) as text from pg_index where indrelid = %s::regclass and indisunique", table
    )
    found = [row["text"].split("USING btree ")[1] for row in rows]
    assert set(UNIQUE[table]) <= set(found)


@pytest.mark.parametrize("table", REFERENCES)
async def test_references_are_composite(workspace: Autopost, table: str) -> None:
    found = await constraints(workspace, table, "f")
    for columns, target in REFERENCES[table]:
        assert any(
            re.match(rf"FOREIGN KEY \({columns}\) REFERENCES (\w+\.)?{target}\({columns}\)", text) for text in found
        )


@pytest.mark.parametrize("table", INDEXED)
async def test_indexes(workspace: Autopost, table: str) -> None:
    rows = await workspace.sql(
        "select pg_get_indexdef(indexrelid) as text from pg_index where indrelid = %s::regclass",
        table,
    )
    found = [re.search(r"USING \w+ \(([^)]*)\)", row["text"])[1] for row in rows]  # type: ignore[index]
    for columns in INDEXED[table]:
        assert any(index == columns or index.startswith(columns + ",") for index in found), columns


async def constraints(workspace: Autopost, table: str, kind: str) -> list[str]:
    rows = await workspace.sql(
        "select pg_get_constraintdef(oid) as text from pg_constraint where conrelid = %s::regclass and contype = %s",
        table,
        kind,
    )
    return [row["text"] for row in rows]


async def test_every_table_of_a_workspace_has_it_in_its_key(workspace: Autopost) -> None:
    rows = await workspace.sql(
        "select c.relname as name from pg_class c where c.relnamespace = 'autopost'::regnamespace and c.relkind in ('r', 'p')"
        " and not c.relispartition and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and exists ("
        "  select from pg_attribute a where a.attrelid = c.oid and a.attnum = any (i.indkey) and a.attname = 'workspace_id'))"
    )
    assert rows == []


LISTS = {
    "workspaces.status": ("active", "paused", "disabled"),
    "workspace_endpoints.kind": ("webhook_push", "bot_webhook"),
    "channels.send_mode": ("text", "media", "mixed"),
    "channels.window_mode": ("immediate", "windowed"),
    "deliveries.status": ("queued", "claimed", "sending", "sent", "retry", "deduped", "failed_permanent", "dead"),
    "events.result": ("ok", "error"),
    "ingest_runs.kind": ("push", "pull"),
    "ingress_receipts.endpoint_kind": ("webhook_push", "bot_webhook"),
}


@pytest.mark.parametrize("column", LISTS)
async def test_lists_of_values(workspace: Autopost, column: str) -> None:
    table, name = column.split(".")
    checks = [text for text in await constraints(workspace, table, "c") if re.search(rf"\b{name}\b = ANY", text)]
    assert set(re.findall(r"'(\w+)'::text", checks[0])) == set(LISTS[column])


async def test_one_channel_per_destination(workspace: Autopost) -> None:
    await workspace.channel("c1", target_id="@news")
    await workspace.channel("c2", target_id="@news", platform="max")
    with pytest.raises(psycopg.errors.UniqueViolation):
        await workspace.channel("c3", target_id="@news")
    neighbour = type(workspace)(workspace.connection, workspace.workspace + "x")
    await neighbour.workspace_row()
    await neighbour.channel("c1", target_id="@news")


async def test_a_delivery_cannot_point_into_another_workspace(workspace: Autopost) -> None:
    await workspace.channel()
    pushed = await workspace.push("hi")
    neighbour = type(workspace)(workspace.connection, workspace.workspace + "x")
    await neighbour.workspace_row()
    await neighbour.channel("theirs")
    insert = (
        "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash)"
        " values (%s, gen_random_uuid(), %s, %s, 'x')"
    )
    for where, channel_id in ((workspace.workspace, "theirs"), (neighbour.workspace, "theirs")):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            await workspace.sql(insert, where, pushed["message_id"], channel_id)


async def test_names_of_the_specification_need_no_schema(workspace: Autopost) -> None:
    for table in TABLES:
        assert await workspace.sql(f"select * from {table} where false") == []
    functions = (
        "enqueue_messages_and_deliveries",
        "claim_deliveries",
        "begin_sending",
        "mark_sent",
        "schedule_retry",
        "fail_permanent",
    )
    for name in functions:
        assert await workspace.value("select %s::regproc::oid > 0", name)


@pytest.mark.parametrize(
    ("table", "columns"),
    [("channels", {"rate_rps": -1}), ("channels", {"max_parallel": 0}), ("channels", {"dedup_ttl_hours": -1}),
     ("channels", {"settings": [1]}), ("channels", {"on_unknown": "guess"}), ("workspace_endpoints", {"ingress_rps": 0}),
     ("workspace_endpoints", {"max_payload_bytes": 0})],
    ids=str,
)  # fmt: skip
async def test_values_without_sense_cannot_be_stored(workspace: Autopost, table: str, columns: dict[str, Any]) -> None:
    make = workspace.channel if table == "channels" else workspace.endpoint
    with pytest.raises(psycopg.errors.CheckViolation):
        await make(**columns)
