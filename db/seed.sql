-- Demo data for a database with the schema: one workspace, 40 channels (30 Telegram, 10 MAX), one push endpoint, one source
-- that is switched off, one post that is planned for a far day. Loading it again changes nothing.
-- psql -f db/seed.sql, or `vestnik db psql -- -f db/seed.sql`. The endpoint's secret is 'demo-secret-change-me'; credentials are
-- stored with `vestnik apply`.
begin;

insert into core.workspaces (workspace_id, name) values ('demo', 'Demo') on conflict do nothing;
insert into autopost.policies (workspace_id) values ('demo') on conflict do nothing;

insert into autopost.workspace_endpoints (workspace_id, endpoint_id, kind, secret_hash, ingress_rps, meta)
values ('demo', 'main', 'webhook_push', core.sha256_hex('demo-secret-change-me'), 20, '{"name": "Demo push"}')
on conflict do nothing;

insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps)
values ('demo', 'telegram', 'telegram-bot', 30), ('demo', 'max', 'max-bot', 30)
on conflict do nothing;

insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, title, rate_rps, tags, route_filter)
select 'demo', format('%s-%s', p.platform, lpad(n::text, 2, '0')), p.platform, p.prefix || lpad(n::text, 4, '0'),
       p.platform || '-bot', p.platform || '-bot', format('%s %s', initcap(t.topic), n), 1, array[t.topic],
       jsonb_build_object('include_any', jsonb_build_array(t.topic, 'all'))
from (values ('telegram', '-100', 30), ('max', '-700', 10)) p (platform, prefix, channels),
     generate_series(1, p.channels) n,
     lateral (select (array['news', 'sport', 'tech', 'city', 'deals'])[n % 5 + 1]) t (topic)
on conflict do nothing;

insert into autopost.pull_sources (workspace_id, source_id, kind, config_json, enabled, backlog)
values ('demo', 'blog', 'rss', '{"url": "https://blog.example/feed.xml"}', false, 1)
on conflict do nothing;

-- Nothing is sent before somebody has stored credentials and moved it: vestnik planned demo, vestnik why DELIVERY.
select e.outcome as sample_post, e.enqueued
from autopost.enqueue_messages_and_deliveries('demo', 'main', 'webhook_push', '{
    "text": "<b>Hello</b> from the demo workspace", "parse_mode": "HTML", "channels": ["telegram-01", "max-01"],
    "tags": ["all"], "scheduled_for": "2099-01-01T09:00:00Z"}') e
where not exists (select from autopost.messages m where m.workspace_id = 'demo');

commit;
