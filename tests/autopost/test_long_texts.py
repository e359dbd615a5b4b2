"""What is too long for one message goes by the channel's policy: refused, in parts, or its beginning with a link."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from crowd import until
from psycopg.types.json import Jsonb
from test_dispatcher import Dispatch, dispatch  # noqa: F401

from vestnik.adapters import registry
from vestnik.adapters.contract import Adapter, AdapterContext, SendMeta
from vestnik.adapters.wording import worded
from vestnik.autopost.declaration import read_declaration
from vestnik.autopost.verbs import publish
from vestnik.db.pool import Pool
from vestnik.errors import ConfigError
from vestnik.sandbox.faults import parse_faults
from vestnik.sandbox.richtext import Rich
from vestnik.sandbox.server import Sandbox, serve
from vestnik.sandbox.state import State

if TYPE_CHECKING:
    from conftest import Autopost

TOKEN = "1000001:SECRET"
STORY = "\n\n".join(f"<b>Chapter {n}.</b> " + "What happened then. " * 60 for n in range(1, 8))
LIMITS = {"telegram": 4096, "max": 4000}


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with serve(state=State(lenient=True)) as running:
        for platform in running.state.platforms.values():
            platform.limits.chat_rps = platform.limits.token_rps = None
        yield running


@pytest.fixture
async def adapters(sandbox: Sandbox) -> AsyncIterator[list[Adapter]]:
    async def secret(workspace_id: str, platform: str, auth_ref: str) -> str:
        return TOKEN

    context = AdapterContext(secret=secret, base_urls={"telegram": sandbox.telegram_url, "max": sandbox.max_url})
    loaded = list(registry.load(context).values())
    yield loaded
    for adapter in loaded:
        await adapter.close()


def shown_on(sandbox: Sandbox, platform: str) -> list[Rich]:
    return [post.rich for chat in sandbox.state.platforms[platform].chats.values() for post in chat.posts]


async def settled(pool: Pool) -> None:
    await until(pool, "select 1 where not exists (select from autopost.deliveries where sent_at is null)")


@pytest.mark.parametrize("platform", ["telegram", "max"])
async def test_a_long_text_arrives_in_parts_and_whole(
    autopost: Autopost,
    pool: Pool,
    dispatch: Dispatch,  # noqa: F811
    sandbox: Sandbox,
    adapters: list[Adapter],
    platform: str,
) -> None:
    await autopost.channel(platform=platform, target_id="-1", settings={"long_text": "split", "parse_mode": "HTML"})
    await publish(pool, "w", {"text": STORY})
    # The second part is refused for a while: what arrived before it is not sent again.
    sandbox.state.platforms[platform].faults[:] = parse_faults({"kind": "500", "after": 1, "times": 1})
    soon = "20 milliseconds"
    await autopost.policy(backoff_base=soon, platform_cooldown_for=soon, backoff_jitter=0)
    dispatch(*adapters, poll=0.05)
    await settled(pool)
    shown = [rich.text for rich in shown_on(sandbox, platform)]
    plain = STORY.replace("<b>", "").replace("</b>", "")
    assert len(shown) == 3
    assert "".join("".join(shown).split()) == "".join(plain.split())
    assert all(text.startswith("Chapter") for text in shown)
    (delivery,) = await autopost.deliveries()
    assert (delivery["status"], delivery["attempt"]) == ("sent", 2)
    assert delivery["render_meta"]["series_progress"]["calls"] == 3


async def test_the_beginning_arrives_with_a_link_that_is_counted(
    autopost: Autopost,
    pool: Pool,
    dispatch: Dispatch,  # noqa: F811
    sandbox: Sandbox,
    adapters: list[Adapter],
) -> None:
    settings = {"long_text": "truncate_with_link", "utm": {"source": "{platform}"}}
    await autopost.channel("tg", target_id="-1", settings=settings)
    await autopost.channel("mx", platform="max", target_id="-2", settings=settings)
    await publish(pool, "w", {"text": STORY, "parse_mode": "HTML", "links": ["https://e.example/story"]})
    dispatch(*adapters, poll=0.05)
    await settled(pool)
    for platform in LIMITS:
        (post,) = shown_on(sandbox, platform)
        assert post.text.endswith("…\n\ne.example/story")
        assert 3200 < len(post.text) <= LIMITS[platform]
        (link,) = [span.value for span in post.spans if span.kind == "text_link"]
        assert link == f"https://e.example/story?utm_source={platform}"


@pytest.mark.parametrize(("policy", "links", "failed"), [
    (None, [], 2), ("refuse", ["https://e.example/"], 2), ("split", [], 0), ("truncate_with_link", [], 2),
    ("truncate_with_link", ["https://e.example/"], 0),
])  # fmt: skip
async def test_the_policy_of_each_channel(
    workspace: Autopost, policy: str | None, links: list[str], failed: int
) -> None:
    settings = {} if policy is None else {"long_text": policy}
    await workspace.channel("tg", settings=settings)
    await workspace.channel("mx", platform="max", settings=settings)
    await workspace.channel("brave", settings={"long_text": "split"})
    pushed = await workspace.push({"text": "Ж" * 5000, "links": links})
    assert pushed["failed"] == failed
    reasons = {row["last_error"]["message"] for row in await workspace.deliveries("failed_permanent")}
    if failed and policy == "truncate_with_link":
        assert all(reason.endswith("and there is no link to the whole of it") for reason in reasons)
    elif failed:
        assert {reason[:17] for reason in reasons} == {"text is too long:"}


@pytest.mark.parametrize("platform", ["telegram", "max"])
async def test_what_is_queued_is_never_refused_for_its_length(workspace: Autopost, platform: str) -> None:
    """Of HTML, near the limit: what the database lets through, the plan sends, and what it refuses, the plan would."""
    limit = LIMITS[platform]
    for n in range(limit - 60, limit + 20, 5):
        text = f'<p><b>a &amp; b</b> <a href="https://e.org/?a=1&amp;b=2">link</a></p><p>&copy;{"Ж" * (n - 12)}</p>'
        problem = await workspace.value(
            "select autopost.preflight_problem(%s, %s, 'HTML', %s)", platform, text, Jsonb({"text": text})
        )
        try:
            worded(platform, text, SendMeta("HTML"), limit)
            refused = False
        except Exception:
            refused = True
        assert refused == (problem is not None), (n, problem)


# As it is declared


def declared(settings: dict[str, Any]) -> dict[str, Any]:
    channel = {"id": "c", "platform": "telegram", "target": "@c", "auth_ref": "bot", "settings": settings}
    declaration = read_declaration({"workspaces": [{"id": "w", "channels": [channel]}]})
    return declaration.workspaces[0].channels[0].settings


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"long_text": "cut"}, "long_text: must be 'refuse', 'split' or 'truncate_with_link'"),
        ({"large_image": "small"}, "large_image: must be 'document'"),
        ({"utm": {"sauce": "x"}}, "utm.sauce: unknown key; did you mean source?"),
        ({"utm": {"source": ["x"]}}, "utm.source: must be a string"),
        ({"utm": {"source": "{chanel}"}}, "utm.source: {chanel} stands for nothing; {channel} and {platform} do"),
        ({"utm": {"only_hosts": "e.org"}}, "utm.only_hosts: must be a list"),
        ({"utm": {"only_hosts": []}}, "utm.only_hosts: List should have at least 1 item"),
        (
            {"utm": {"only_hosts": ["https://e.org/"]}},
            "utm.only_hosts: 'https://e.org/' is not the name of a host, like shop.example",
        ),
    ],
)
def test_a_setting_that_means_nothing_is_refused_in_words(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        declared(settings)
    assert str(refused.value).startswith(f"workspaces.w.channels.c.settings: {fault}")


def test_settings_are_kept_as_they_are_written() -> None:
    settings = {
        "long_text": "split", "large_image": "document", "mine": {"a": 1}, "vars": {"year": 2027},
        "utm": {"source": "{platform}", "campaign": 2027, "only_hosts": ["shop.example", "*.сайт.рф"]},
    }  # fmt: skip
    assert declared(settings) == settings
