"""Which channels a post goes to: their filters against its tags, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

# The matching rule as the specification gives it, in SQL: what fan_out's choice is compared with.
REFERENCE = """
with filters as (
    select c.channel_id,
           coalesce(array(select jsonb_array_elements_text(c.route_filter -> 'include_any')), '{}') as wants_any,
           coalesce(array(select jsonb_array_elements_text(c.route_filter -> 'include_all')), '{}') as wants_all,
           coalesce(array(select jsonb_array_elements_text(c.route_filter -> 'exclude')), '{}') as refuses
    from autopost.channels c where c.workspace_id = %s and c.enabled
)
select f.channel_id from filters f join autopost.messages m on m.workspace_id = %s and m.message_id = %s
where (cardinality(f.wants_any) = 0 or coalesce(m.tags, '{}') && f.wants_any)
  and (cardinality(f.wants_all) = 0 or coalesce(m.tags, '{}') @> f.wants_all)
  and (cardinality(f.refuses) = 0 or not coalesce(m.tags, '{}') && f.refuses)
"""


async def wanted_by(workspace: Autopost, *tags: str, **payload: Any) -> set[str]:
    await workspace.push({"text": f"post {workspace.now}", "tags": list(tags)} | payload)
    workspace.wait(seconds=1)
    newest = "select max(created_at) from autopost.messages where workspace_id = %s"
    rows = await workspace.sql(
        "select d.channel_id from autopost.deliveries d join autopost.messages m using (workspace_id, message_id)"
        f" where workspace_id = %s and m.created_at = ({newest})",
        workspace.workspace, workspace.workspace,
    )  # fmt: skip
    return {row["channel_id"] for row in rows}


async def test_a_channel_without_a_filter_takes_everything(workspace: Autopost) -> None:
    await workspace.channel("null", route_filter=None)
    await workspace.channel("empty", route_filter={})
    await workspace.channel("blank", route_filter={"include_any": [], "include_all": [], "exclude": []})
    assert await wanted_by(workspace) == await wanted_by(workspace, "any", "tags") == {"null", "empty", "blank"}


async def test_include_any_wants_one_of_its_tags(workspace: Autopost) -> None:
    await workspace.channel(route_filter={"include_any": ["crypto", "ru"]})
    assert await wanted_by(workspace, "ru", "en") == {"c1"}
    assert await wanted_by(workspace, "en") == set()
    assert await wanted_by(workspace) == set()


async def test_include_all_wants_all_of_its_tags(workspace: Autopost) -> None:
    await workspace.channel(route_filter={"include_all": ["listing", "ru"]})
    assert await wanted_by(workspace, "ru", "listing", "en") == {"c1"}
    assert await wanted_by(workspace, "ru") == set()
    assert await wanted_by(workspace) == set()


async def test_exclude_wants_none_of_its_tags(workspace: Autopost) -> None:
    await workspace.channel(route_filter={"exclude": ["nsfw"]})
    assert await wanted_by(workspace, "nsfw", "ru") == set()
    assert await wanted_by(workspace, "ru") == {"c1"}
    assert await wanted_by(workspace) == {"c1"}


async def test_the_three_rules_hold_together_whatever_the_case_of_a_tag(workspace: Autopost) -> None:
    await workspace.channel(
        route_filter={"include_any": ["крипто", "ru"], "include_all": ["listing"], "exclude": ["nsfw"]}
    )
    assert await wanted_by(workspace, "КРИПТО", "Listing") == {"c1"}
    assert await wanted_by(workspace, "listing") == set()
    assert await wanted_by(workspace, "ru", "listing", "NSFW") == set()
    assert await wanted_by(workspace, text="#Ru #LISTING now") == {"c1"}


async def test_named_channels_are_still_subject_to_their_filters(workspace: Autopost) -> None:
    await workspace.channel("c1")
    await workspace.channel("c2", route_filter={"include_any": ["ru"]})
    await workspace.channel("c3")
    assert await wanted_by(workspace, channels=["c1", "c2"]) == {"c1"}
    assert await wanted_by(workspace, "ru", channels=["c2"]) == {"c2"}
    assert await wanted_by(workspace, channels=[]) == set()
    assert await wanted_by(workspace, channels=None) == {"c1", "c3"}
    pushed = await workspace.push({"text": "typo", "channels": ["c1", "c9", "c8"]})
    assert (pushed["enqueued"], pushed["warnings"]) == (1, ["no such channel: c8, c9"])


async def test_a_new_channel_gets_the_next_post_and_a_disabled_one_does_not(workspace: Autopost) -> None:
    await workspace.channel("old")
    assert await wanted_by(workspace) == {"old"}
    await workspace.channel("new")
    assert await wanted_by(workspace) == {"old", "new"}
    await workspace.sql("update autopost.channels set enabled = false where workspace_id = %s and channel_id = 'old'",
                        workspace.workspace)  # fmt: skip
    assert await wanted_by(workspace) == {"new"}


async def test_a_paused_or_cooling_channel_still_queues(workspace: Autopost) -> None:
    await workspace.channel("paused", paused_until=workspace.now.replace(year=2030))
    await workspace.channel("cooling", cooldown_until=workspace.now.replace(year=2030))
    assert await wanted_by(workspace) == {"paused", "cooling"}


async def test_channels_of_another_workspace_are_never_chosen(workspace: Autopost) -> None:
    neighbour = type(workspace)(workspace.connection, workspace.workspace + "x")
    await neighbour.workspace_row()
    await neighbour.channel("theirs")
    await workspace.channel("ours")
    assert (await workspace.push({"text": "hi", "workspace_id": neighbour.workspace}))["enqueued"] == 1
    assert await neighbour.deliveries() == []
    named = await workspace.push({"text": "hello", "channels": ["theirs"]})
    assert (named["enqueued"], named["warnings"]) == (0, ["no such channel: theirs"])


async def test_a_post_that_nobody_gets_says_why(workspace: Autopost) -> None:
    assert (await workspace.push("a"))["warnings"] == ["no channel wants it: the workspace has none"]
    await workspace.channel("off", enabled=False)
    await workspace.channel("picky", route_filter={"include_any": ["sale"]})
    await workspace.channel("choosy", route_filter={"exclude": ["dull"]})
    picky = "picky: its route_filter wants one of sale, and the post has dull"
    assert (await workspace.push({"text": "b", "tags": ["dull"]}))["warnings"] == [
        f"no channel wants it: choosy: its route_filter excludes dull; off: the channel is disabled; {picky}"
    ]
    named = await workspace.push({"text": "c", "tags": ["dull"], "channels": ["picky", "nowhere"]})
    assert named["warnings"] == ["no such channel: nowhere", f"no channel wants it: {picky}"]
    nobody = await workspace.push({"text": "d", "channels": []})
    assert nobody["warnings"] == ["no channel wants it: the post names none"]
    assert (await workspace.push("e"))["warnings"] == [], "one wants it"
    assert (await workspace.push("e"))["warnings"] == [], "one had it"


async def test_of_many_channels_that_do_not_want_it_only_the_first_are_named(workspace: Autopost) -> None:
    for n in range(15):
        await workspace.channel(f"c{n:02}", enabled=False)
    (warning,) = (await workspace.push("a"))["warnings"]
    assert warning.startswith("no channel wants it: c00: the channel is disabled; ")
    assert warning.endswith("; c02: the channel is disabled; and 12 more")


@pytest.mark.parametrize(
    "route_filter",
    [
        [], "ru", {"include_any": "ru"}, {"include_any": None}, {"include_any": [1]}, {"include_any": [["ru"]]},
        {"include_all": ["RU"]}, {"exclude": ["Ж"]}, {"include": ["ru"]},
    ],
    ids=str,
)  # fmt: skip
async def test_a_filter_of_another_shape_cannot_be_stored(workspace: Autopost, route_filter: Any) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="channels_route_filter_shape"):
        await workspace.channel(route_filter=route_filter)


async def test_tags_of_a_channel_are_lower_case(workspace: Autopost) -> None:
    await workspace.channel(tags=["ru", "новости"])
    with pytest.raises(psycopg.errors.CheckViolation):
        await workspace.channel("c2", tags=["Новости"])


some_tags = st.lists(st.sampled_from(["a", "b", "ж", "news"]), max_size=3)
route_filters = st.none() | st.fixed_dictionaries(
    {}, optional={"include_any": some_tags, "include_all": some_tags, "exclude": some_tags}
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filters=st.lists(route_filters, min_size=3, max_size=8), tags=some_tags, off=st.integers(0, 12))
async def test_fan_out_chooses_as_the_specification_does(
    workspace: Autopost, filters: list[Any], tags: list[str], off: int
) -> None:
    async with workspace.connection.transaction(force_rollback=True):
        for n, route_filter in enumerate(filters):
            await workspace.channel(f"c{n}", route_filter=route_filter, enabled=n != off)
        pushed = await workspace.push({"text": "post", "tags": tags})
        expected = await workspace.sql(REFERENCE, workspace.workspace, workspace.workspace, pushed["message_id"])
        chosen = [row["channel_id"] for row in await workspace.deliveries()]
        assert chosen == sorted(row["channel_id"] for row in expected)
