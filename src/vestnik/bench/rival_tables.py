"""Tables like the real ones, with the same indexes, checks, fill factor and days, and copies of the real rows to put in:
what the same data costs when nothing is decided, rendered or kept from being doubled. Foreign keys stay out."""

from __future__ import annotations

import time

from psycopg import sql

from vestnik.db.pool import Connection

TABLES = ("deliveries", "events")


async def create(connection: Connection) -> None:
    await connection.execute(_CREATE.encode())


async def copy_rows(connection: Connection, part: int) -> None:
    """All rows that the real tables hold now become one part."""
    for table in TABLES:
        await connection.execute(
            sql.SQL("create unlogged table public.{} as table autopost.{}").format(
                _part(table, part), sql.Identifier(table)
            )
        )


async def copy_in_parts(connection: Connection, size: int) -> int:
    """The rows that the real tables hold now, split into parts of whole messages with about so many deliveries."""
    await connection.execute(_SPLIT.encode(), (size,))
    cursor = await connection.execute("select max(part) + 1 as parts from public.message_parts")
    row = await cursor.fetchone()
    parts = int(row["parts"]) if row else 0
    for part in range(parts):
        for table in TABLES:
            await connection.execute(
                sql.SQL(
                    "create unlogged table public.{} as select t.* from autopost.{} t"
                    " join public.message_parts p using (message_id) where p.part = {}"
                ).format(_part(table, part), sql.Identifier(table), sql.Literal(part))
            )
    return parts


async def insert_part(connection: Connection, part: int) -> float:
    began = time.perf_counter()
    async with connection.transaction():
        for table in TABLES:
            await connection.execute(
                sql.SQL("insert into public.{} select * from public.{}").format(
                    sql.Identifier(f"plain_{table}"), _part(table, part)
                )
            )
    return time.perf_counter() - began


async def count(connection: Connection, table: str = "deliveries") -> int:
    cursor = await connection.execute(
        sql.SQL("select count(*) as n from public.{}").format(sql.Identifier(f"plain_{table}"))
    )
    row = await cursor.fetchone()
    return int(row["n"]) if row else 0


def _part(table: str, part: int) -> sql.Identifier:
    return sql.Identifier(f"{table}_{part}")


_CREATE = """
do $$
declare
    storage text := (select array_to_string(reloptions, ', ') from pg_class where oid = 'autopost.deliveries'::regclass);
    days regclass[] := array(select inhrelid::regclass from pg_inherits where inhparent = 'autopost.events'::regclass);
    day regclass;
begin
    execute format('create table public.plain_deliveries (like autopost.deliveries including all) with (%s)', storage);
    create table public.plain_events (like autopost.events including all) partition by range (ts);
    foreach day in array days loop
        execute format('create table public.plain_events_%s partition of public.plain_events %s', day::oid,
                       (select pg_get_expr(c.relpartbound, c.oid) from pg_class c where c.oid = day));
    end loop;
end $$;
"""
_SPLIT = """
create unlogged table public.message_parts as
select message_id, (sum(count(*)) over (order by message_id) - 1)::bigint / %s as part
from autopost.deliveries group by message_id
"""
