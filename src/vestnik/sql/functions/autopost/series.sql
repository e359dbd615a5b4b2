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

-- One more call of the plan was acknowledged: p_items are the places of its media. A retry goes on behind it.
create or replace function autopost.record_progress(
    p_workspace_id text, p_delivery_id uuid, p_lease integer, p_message_ids text[], p_items integer[],
    p_now timestamptz default now()) returns boolean
language plpgsql as $$
begin
    update autopost.deliveries d
    set render_meta = jsonb_set(d.render_meta, '{series_progress}', jsonb_build_object(
            'calls', coalesce((d.render_meta #>> '{series_progress,calls}')::integer, 0) + 1,
            'sent_items', coalesce(d.render_meta #> '{series_progress,sent_items}', '[]') || to_jsonb(p_items),
            'provider_message_ids', coalesce(d.render_meta #> '{series_progress,provider_message_ids}', '[]') || to_jsonb(p_message_ids))),
        sending_started_at = p_now, updated_at = p_now
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id and d.status || '' = 'sending' and d.lease = p_lease;
    return found;
end $$;
