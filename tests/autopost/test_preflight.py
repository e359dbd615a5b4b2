"""What a platform would refuse is known before it is asked, for each channel by itself, and is never tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def problem_of(
    workspace: Autopost, text: str, parse_mode: str = "None", platform: str = "telegram"
) -> str | None:
    return await workspace.value("select autopost.preflight_problem(%s, %s, %s, '{}')", platform, text, parse_mode)


@pytest.mark.parametrize(("platform", "limit"), [("telegram", 4096), ("max", 4000)])
async def test_the_length_limit_of_each_platform(workspace: Autopost, platform: str, limit: int) -> None:
    assert await problem_of(workspace, "a" * limit, platform=platform) is None
    too_long = await problem_of(workspace, "a" * (limit + 1), platform=platform)
    assert too_long == f"text is too long: {limit + 1} of {limit} characters"


async def test_length_is_counted_in_utf16_units(workspace: Autopost) -> None:
    assert await problem_of(workspace, "😀" * 2048) is None
    assert await problem_of(workspace, "😀" * 2048 + "a") == "text is too long: 4097 of 4096 characters"
    assert await problem_of(workspace, "Ж" * 4096) is None


async def test_telegram_counts_what_is_left_of_the_markup_and_max_all_of_it(workspace: Autopost) -> None:
    html = "<b>" + "a" * 3994 + "</b>"
    assert await problem_of(workspace, html, "HTML", "telegram") is None
    assert await problem_of(workspace, html, "HTML", "max") == "text is too long: 4001 of 4000 characters"
    assert await problem_of(workspace, "&lt;" * 4096, "HTML") is None
    assert await problem_of(workspace, "&lt;" * 4097, "HTML") == "text is too long: 4097 of 4096 characters"
    assert await problem_of(workspace, "**" + "a" * 4096 + "**", "Markdown") is None
    assert await problem_of(workspace, "[a](https://e.example/long)" * 4096, "Markdown") is not None
    assert await problem_of(workspace, "[a](https://e.example/)" * 2000, "Markdown") is None


async def test_a_text_beyond_any_limit_is_refused_before_its_markup_is_read(workspace: Autopost) -> None:
    problem = await problem_of(workspace, "<b>" * 100_000, "HTML")
    assert problem == "text is too long: 300000 characters before its markup is read"


@pytest.mark.parametrize(
    "html",
    [
        "plain & simple",
        "<b>bold <i>and</i></b>",
        '<a href="https://e.example/?a=1&b=2">link</a>',
        "<a href='https://e.example'>x</a><br>y<br/>z",
        '<span class="tg-spoiler">s</span><tg-spoiler>t</tg-spoiler>',
        '<pre><code class="language-python">x</code></pre>',
        "<B>any case</b>",
        "1 &lt; 2 > 1",
        "<blockquote expandable>long</blockquote>",
        "<b>" * 32 + "x" + "</b>" * 32,
    ],
)
async def test_balanced_html_passes(workspace: Autopost, html: str) -> None:
    assert await problem_of(workspace, html, "HTML") is None


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ("<b>open", "<b> is never closed"),
        ("<b><i>x</i>", "<b> is never closed"),
        ("close</b>", "</b> closes nothing"),
        ("<b><i>x</b></i>", "</b> comes while <i> is open"),
        ("<blink>x</blink>", "unknown tag <blink>"),
        ("<script>x</script>", "unknown tag <script>"),
        ("1 < 2", 'a "<" opens no tag; write &lt; for the character itself'),
        ("<a>no address</a>", "a link <a> has no href"),
        ("<b", 'a "<" opens no tag; write &lt; for the character itself'),
        ("<b>" * 33 + "x" + "</b>" * 33, "tags are nested more than 32 deep"),
        ("<b></b>", "nothing is left of the text once its markup is taken away"),
    ],
)
async def test_faulty_html_is_told_in_words(workspace: Autopost, html: str, problem: str) -> None:
    assert await problem_of(workspace, html, "HTML") == problem
    assert await problem_of(workspace, html + " ", "None") is None, "plain text has no tags"


@pytest.mark.parametrize("mode", ["HTML", "Markdown", "None"])
async def test_the_three_parse_modes_are_known(workspace: Autopost, mode: str) -> None:
    assert await problem_of(workspace, "hi", mode) is None


async def test_an_unknown_parse_mode_of_a_channel_fails_its_posts(workspace: Autopost) -> None:
    await workspace.channel(settings={"parse_mode": "BBCode"})
    await workspace.channel("c2")
    pushed = await workspace.push("hi")
    assert (pushed["enqueued"], pushed["failed"]) == (1, 1)
    assert (await workspace.deliveries("failed_permanent"))[0]["last_error"]["message"] == "unknown parse mode BBCode"


@pytest.mark.parametrize(("send_mode", "enqueued"), [("text", 1), ("mixed", 1), ("media", 0)])
async def test_a_channel_takes_only_what_its_send_mode_says(workspace: Autopost, send_mode: str, enqueued: int) -> None:
    await workspace.channel(send_mode=send_mode)
    pushed = await workspace.push("only text")
    assert (pushed["enqueued"], pushed["failed"]) == (enqueued, 1 - enqueued)
    if not enqueued:
        error = (await workspace.deliveries())[0]["last_error"]
        assert (error["code"], error["message"]) == (
            "validation_failed", "this channel takes media only, and the post is text",
        )  # fmt: skip


async def test_max_takes_thirty_rows_of_three_link_buttons(workspace: Autopost) -> None:
    """A wider row is broken into several by the adapter; only what does not fit after that is refused."""
    await workspace.channel("mx", platform="max")
    await workspace.channel("tg")
    button = {"text": "Go", "url": "https://e.example"}
    assert (await workspace.push({"text": "a", "buttons": [[button] * 4] * 15}))["failed"] == 0
    pushed = await workspace.push({"text": "b", "buttons": [[button] * 4] * 16})
    assert (pushed["enqueued"], pushed["failed"]) == (1, 1)
    assert (await workspace.deliveries("failed_permanent"))[0]["channel_id"] == "mx"


async def test_4050_characters_pass_telegram_and_fail_max_in_one_push(workspace: Autopost) -> None:
    for n in range(2):
        await workspace.channel(f"tg{n}")
        await workspace.channel(f"mx{n}", platform="max")
    pushed = await workspace.push("Ж" * 4050)
    assert (pushed["enqueued"], pushed["suppressed"], pushed["failed"]) == (2, 0, 2)
    found = {row["channel_id"]: row["status"] for row in await workspace.deliveries()}
    assert found == {"tg0": "queued", "tg1": "queued", "mx0": "failed_permanent", "mx1": "failed_permanent"}


async def test_what_fails_preflight_is_failed_for_good_with_its_event(workspace: Autopost) -> None:
    await workspace.channel()
    pushed = await workspace.push({"text": "<b>open", "parse_mode": "HTML"})
    delivery = (await workspace.deliveries())[0]
    error: dict[str, Any] = {
        "category": "PERMANENT", "scope": "delivery", "code": "validation_failed", "message": "<b> is never closed",
    }  # fmt: skip
    assert (delivery["status"], delivery["attempt"], delivery["last_error"]) == ("failed_permanent", 0, error)
    (event,) = await workspace.events()
    assert (event["action"], event["result"], event["attempt"]) == ("validation_failed", "error", 0)
    assert (event["error"], event["delivery_id"]) == (error, delivery["delivery_id"])
    assert event["meta"]["trace_id"] == str(pushed["trace_id"])
    channel = await workspace.channel_row()
    assert (channel["error_streak"], channel["paused_until"], channel["enabled"]) == (0, None, True)


async def test_what_failed_preflight_is_never_tried_again(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push("Ж" * 4097)
    for _ in range(3):
        workspace.wait(days=1)
        assert await workspace.take() == []
        await workspace.sweep()
    assert await workspace.statuses() == {"failed_permanent": 1}
    assert (await workspace.deliveries())[0]["next_retry_at"] is None


async def test_a_failed_post_does_not_stand_in_the_way_of_the_same_post(workspace: Autopost) -> None:
    """The channel's send_mode is put right, and the post is pushed again."""
    await workspace.channel(send_mode="media")
    await workspace.push("hi")
    await workspace.sql("update autopost.channels set send_mode = 'text' where workspace_id = %s", workspace.workspace)
    assert (await workspace.push("hi"))["enqueued"] == 1
