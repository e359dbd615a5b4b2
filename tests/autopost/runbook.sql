-- The manual operations of the specification, as it prints them. Each section begins with its number and title.

-- 1) Queue snapshot by status
select workspace_id, status, count(*) as cnt
from deliveries
where workspace_id = :workspace_id
group by workspace_id, status
order by status;

-- 2) Recent error stream (what broke)
select ts, action, result, channel_id, delivery_id, attempt, error, meta
from events
where workspace_id = :workspace_id
  and ts >= now() - interval '30 minutes'
  and result = 'error'
order by ts desc
limit 200;

-- 3) Safe requeue for `dead`
with moved as (
  update deliveries d
  set status = 'retry',
      next_retry_at = now(),
      claimed_at = null,
      claim_token = null,
      sending_started_at = null,
      updated_at = now()
  where d.workspace_id = :workspace_id
    and d.status = 'dead'
    and d.delivery_id = any(:delivery_ids)
  returning d.workspace_id, d.delivery_id, d.message_id, d.channel_id, d.attempt
)
insert into events (id, workspace_id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
select gen_random_uuid(), m.workspace_id, m.delivery_id, m.message_id, m.channel_id, now(),
       'manual_requeue', m.attempt, 'ok', null, null,
       jsonb_build_object('operator', :operator, 'reason', :reason, 'from_status', 'dead')
from moved m;

-- 4) Requeue `failed_permanent` (only delivery-scope cases)
with moved as (
  update deliveries d
  set status = 'retry',
      next_retry_at = now(),
      claimed_at = null,
      claim_token = null,
      sending_started_at = null,
      updated_at = now()
  where d.workspace_id = :workspace_id
    and d.status = 'failed_permanent'
    and coalesce(d.last_error->>'scope', 'delivery') = 'delivery'
    and d.delivery_id = any(:delivery_ids)
  returning d.workspace_id, d.delivery_id, d.message_id, d.channel_id, d.attempt
)
insert into events (id, workspace_id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
select gen_random_uuid(), m.workspace_id, m.delivery_id, m.message_id, m.channel_id, now(),
       'manual_requeue', m.attempt, 'ok', null, null,
       jsonb_build_object('operator', :operator, 'reason', :reason, 'from_status', 'failed_permanent')
from moved m;

-- 5) Pause one channel (quarantine)
with ch as (
  update channels c
  set paused_until = now() + make_interval(secs => :pause_seconds),
      updated_at = now()
  where c.workspace_id = :workspace_id
    and c.channel_id = :channel_id
  returning c.workspace_id, c.channel_id
)
insert into events (id, workspace_id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
select gen_random_uuid(), ch.workspace_id, null, null, ch.channel_id, now(),
       'channel_paused', 0, 'ok', null, null,
       jsonb_build_object('operator', :operator, 'reason', :reason, 'manual', true)
from ch;

-- 6) Enable/resume one channel
with ch as (
  update channels c
  set enabled = true,
      paused_until = null,
      error_streak = 0,
      updated_at = now()
  where c.workspace_id = :workspace_id
    and c.channel_id = :channel_id
  returning c.workspace_id, c.channel_id
)
insert into events (id, workspace_id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
select gen_random_uuid(), ch.workspace_id, null, null, ch.channel_id, now(),
       'channel_enabled', 0, 'ok', null, null,
       jsonb_build_object('operator', :operator, 'reason', :reason, 'manual', true)
from ch;

-- 7) Disable channel group (`rate_group`)
with ch as (
  update channels c
  set enabled = false,
      updated_at = now()
  where c.workspace_id = :workspace_id
    and c.rate_group = :rate_group
  returning c.workspace_id, c.channel_id
)
insert into events (id, workspace_id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
select gen_random_uuid(), ch.workspace_id, null, null, ch.channel_id, now(),
       'channel_disabled', 0, 'ok', null, null,
       jsonb_build_object('operator', :operator, 'reason', :reason, 'rate_group', :rate_group, 'manual', true)
from ch;

-- 8) Enable channel group (`rate_group`)
with ch as (
  update channels c
  set enabled = true,
      paused_until = null,
      error_streak = 0,
      updated_at = now()
  where c.workspace_id = :workspace_id
    and c.rate_group = :rate_group
  returning c.workspace_id, c.channel_id
)
insert into events (id, workspace_id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
select gen_random_uuid(), ch.workspace_id, null, null, ch.channel_id, now(),
       'channel_enabled', 0, 'ok', null, null,
       jsonb_build_object('operator', :operator, 'reason', :reason, 'rate_group', :rate_group, 'manual', true)
from ch;

-- 9) Rotate `auth_ref` safely
begin;

-- Optional short pause to drain in-flight sends
update channels
set paused_until = now() + interval '2 minutes',
    updated_at = now()
where workspace_id = :workspace_id
  and channel_id = :channel_id;

-- Guard: no active sending before switch
select count(*) as sending_now
from deliveries
where workspace_id = :workspace_id
  and channel_id = :channel_id
  and status = 'sending';

insert into channel_auth (workspace_id, channel_id, auth_ref, rotated_at, updated_at)
values (:workspace_id, :channel_id, :new_auth_ref, now(), now())
on conflict (workspace_id, channel_id)
do update set auth_ref = excluded.auth_ref, rotated_at = excluded.rotated_at, updated_at = excluded.updated_at;

update channels
set auth_ref = :new_auth_ref,
    rate_group = coalesce(:new_rate_group, rate_group),
    updated_at = now()
where workspace_id = :workspace_id
  and channel_id = :channel_id;

insert into events (id, workspace_id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
values (
  gen_random_uuid(), :workspace_id, null, null, :channel_id, now(),
  'auth_rotated', 0, 'ok', null, null,
  jsonb_build_object('operator', :operator, 'old_auth_ref', :old_auth_ref, 'new_auth_ref', :new_auth_ref)
);

commit;

-- 10) Emergency release of stale `claimed/sending`
with moved as (
  update deliveries d
  set status = 'retry',
      next_retry_at = now() + interval '15 seconds',
      claimed_at = null,
      claim_token = null,
      sending_started_at = null,
      updated_at = now()
  where d.workspace_id = :workspace_id
    and d.status in ('claimed', 'sending')
    and coalesce(d.sending_started_at, d.claimed_at) < now() - interval '10 minutes'
  returning d.workspace_id, d.delivery_id, d.message_id, d.channel_id, d.attempt
)
insert into events (id, workspace_id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
select gen_random_uuid(), m.workspace_id, m.delivery_id, m.message_id, m.channel_id, now(),
       'manual_requeue', m.attempt, 'ok', null, null,
       jsonb_build_object('operator', :operator, 'reason', 'manual_stuck_release')
from moved m;
