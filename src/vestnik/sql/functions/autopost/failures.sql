-- Failures that other programs hear of (ops/webhooks.sql). Noted where the event is written, whoever writes it: a cursor
-- over the events would miss what commits late.
-- Not installed where events is distributed; there the webhooks are silent (ARCHITECTURE, Scale).

create or replace function autopost.note_failure() returns trigger
language plpgsql as $$
declare
    kind constant text := case new.action when 'dead_letter' then 'delivery.dead' when 'channel_disabled' then 'channel.disabled'
                                          else 'delivery.failed_permanent' end;
begin
    insert into ops.failures (workspace_id, event_id, ts, type, data)
    select new.workspace_id, new.id, new.ts, kind, autopost.failure_data(new)
    where exists (select from ops.webhooks w
                  where w.workspace_id = new.workspace_id and w.enabled and kind = any (w.events));
    return null;
end $$;

-- The condition is all that other events pay for.
create or replace trigger events_failures after insert on autopost.events
for each row when (new.action in ('dead_letter', 'failed_permanent', 'validation_failed', 'channel_disabled'))
execute function autopost.note_failure();

-- Ids and a cause: nothing that somebody wrote, and nothing that a platform said in its own words.
create or replace function autopost.failure_data(p_event autopost.events) returns jsonb
language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'workspace_id', p_event.workspace_id, 'event_id', p_event.id, 'delivery_id', p_event.delivery_id,
        'message_id', p_event.message_id, 'channel_id', p_event.channel_id, 'platform', (
            select c.platform from autopost.channels c
            where c.workspace_id = p_event.workspace_id and c.channel_id = p_event.channel_id),
        'attempt', case when p_event.delivery_id is not null then p_event.attempt end,
        'error', nullif(jsonb_strip_nulls(jsonb_build_object(
            'category', p_event.error -> 'category', 'code', p_event.error -> 'code', 'scope', p_event.error -> 'scope')), '{}'),
        'manual', p_event.meta -> 'manual', 'trace_id', p_event.meta -> 'trace_id'))
$$;
