-- Sends that take long: several calls, or many bytes. They say that they are alive, and how far they have got.

-- The lease begins anew. False: the row is not this sender's any more, and it must stop.
create or replace function autopost.extend_sending(
    p_workspace_id text, p_delivery_id uuid, p_lease integer, p_now timestamptz default now()) returns boolean
language plpgsql as $$
begin
    update autopost.deliveries d set sending_started_at = p_now, updated_at = p_now
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id and d.status || '' = 'sending' and d.lease = p_lease;
    return found;
end $$;

-- One more call of the plan was acknowledged, the p_calls-th: p_items are the places of its media. A retry goes on behind it.
-- Asked again, because the answer was lost, it is the same call. The first one pins what the calls were planned with (p_plan):
-- all of the series is shown in one place and in one shape. Tries count from here on, and no file is waited for any more.
create or replace function autopost.record_progress(
    p_workspace_id text, p_delivery_id uuid, p_lease integer, p_calls integer, p_message_ids text[], p_items integer[],
    p_plan jsonb default null, p_now timestamptz default now()) returns boolean
language plpgsql as $$
begin
    perform autopost.count_call(p_workspace_id, p_delivery_id, p_now);
    update autopost.deliveries d
    set render_meta = case when (d.render_meta #>> '{series_progress,calls}')::integer >= p_calls then d.render_meta else
            jsonb_strip_nulls(jsonb_build_object('series_plan', p_plan))
            || (d.render_meta - '{not_ready_since,not_ready_attempts}'::text[])
            || jsonb_build_object('series_progress', jsonb_build_object(
                'calls', p_calls, 'attempt', d.attempt,
                'sent_items', coalesce(d.render_meta #> '{series_progress,sent_items}', '[]') || to_jsonb(p_items),
                'provider_message_ids', coalesce(d.render_meta #> '{series_progress,provider_message_ids}', '[]') || to_jsonb(p_message_ids))) end,
        sending_started_at = p_now, updated_at = p_now
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id and d.status || '' = 'sending' and d.lease = p_lease;
    return found;
end $$;

-- The next begin keeps its distance from this call, too, whoever made it: the platform has counted it.
create or replace function autopost.count_call(p_workspace_id text, p_delivery_id uuid, p_now timestamptz) returns void
language sql volatile as $$
    update autopost.platform_limits g set last_begin_at = greatest(g.last_begin_at, p_now)
    from autopost.deliveries d
    join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
      and g.workspace_id = d.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group and g.rate_rps > 0;
    update autopost.channels c set last_begin_at = greatest(c.last_begin_at, p_now)
    from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
      and c.workspace_id = d.workspace_id and c.channel_id = d.channel_id and c.rate_rps > 0
$$;

-- Seconds between two messages of one series: a step of its channel or of its group, whichever is longer. Null: no limit.
create or replace function autopost.series_pace(p_workspace_id text, p_channel_id text) returns double precision
language sql stable as $$
    select extract(epoch from greatest(autopost.step_of(c.rate_rps), autopost.step_of(g.rate_rps)))::double precision
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id
$$;
