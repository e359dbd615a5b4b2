-- Full payloads: whether and how long a workspace keeps them, where an event names one, and who has looked.

create or replace function autopost.keeps_payloads(p_workspace_id text) returns boolean
language sql stable as $$
    select coalesce(ops.retention_options(p_workspace_id, 'payloads') ->> 'raw_payloads', 'errors') <> 'off'
$$;

-- Not longer than the deliveries that they tell of, unless somebody said so in so many words: also where the deliveries' own
-- measure was made shorter later.
create or replace function autopost.payloads_keep(p_workspace_id text) returns interval
language sql stable as $$
    select case when ops.retention_options(p_workspace_id, 'payloads') -> 'may_outlive_deliveries' = 'true'
                then ops.keep_of(p_workspace_id, 'payloads')
                else least(ops.keep_of(p_workspace_id, 'payloads'), ops.keep_of(p_workspace_id, 'deliveries')) end
$$;

-- Events that name a payload, the newest first.
create or replace function autopost.list_payloads(
    p_workspace_id text, p_since interval default '14 days', p_delivery_id uuid default null, p_limit integer default 100,
    p_now timestamptz default now())
returns table (ts timestamptz, payload_ref text, action text, delivery_id uuid, message_id uuid, channel_id text, code text)
language sql stable as $$
    select e.ts, e.payload_ref, e.action, e.delivery_id, e.message_id, e.channel_id, coalesce(e.error ->> 'code', e.meta ->> 'reason')
    from autopost.events e
    where e.workspace_id = p_workspace_id and e.result = 'error' and e.payload_ref is not null and e.ts >= p_now - p_since
      and (p_delivery_id is null or e.delivery_id = p_delivery_id)
    order by e.ts desc limit p_limit
$$;

-- A link that was asked for, or a look. The reason is redacted as every text that people write here.
create or replace function autopost.note_payload_read(
    p_workspace_id text, p_actor text, p_via text, p_action text, p_payload_ref text, p_reason text, p_outcome text,
    p_link_id uuid default null, p_now timestamptz default now()) returns uuid
language sql volatile as $$
    insert into core.payload_reads (workspace_id, read_id, ts, actor, via, action, payload_ref, reason, outcome, link_id)
    values (p_workspace_id, core.uuid7(p_now), p_now, left(p_actor, 200), p_via, p_action, left(p_payload_ref, 100),
            left(core.redact_text(p_reason), 500), p_outcome, p_link_id)
    returning read_id
$$;

create or replace function autopost.list_payload_reads(p_workspace_id text, p_since interval default '30 days', p_limit integer default 200,
    p_now timestamptz default now())
returns setof core.payload_reads
language sql stable as $$
    select r.* from core.payload_reads r
    where r.workspace_id = p_workspace_id and r.ts >= p_now - p_since order by r.ts desc, r.read_id desc limit p_limit
$$;
