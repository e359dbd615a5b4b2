"""What the enqueue refuses of a post's media, the adapter's plan refuses, and nothing else.

On purpose they differ in one thing: a file that is gone from the object store is refused by the enqueue alone, because
a plan does not look at files. What is not known yet (an address before its fetch) neither judges.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from vestnik.adapters import max_plan, telegram_plan
from vestnik.adapters.contract import Channel, SendError, SendMeta
from vestnik.autopost.sender import media_of

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16
MB = 1024 * 1024
CASES = 3000
TYPES = ("image", "video", "audio", "file", "animation")
CONTENT_TYPES = (
    None,
    "image/png",
    "image/gif",
    "image/webp",
    "image/heic",
    "image/tiff",
    "video/mp4",
    "application/pdf",
)
SIZES = (None, 1, 10 * MB, 10 * MB + 1, 50 * MB, 50 * MB + 1, 250 * MB, 250 * MB + 1, 256 * MB + 1, 4096 * MB + 1)
SIDES = (None, (100, 100), (5000, 5000), (5001, 5000), (100, 2000), (100, 2001), (7680, 7), (7681, 1000), (7681, 7681))
CAPTIONS = (None, None, None, "c", "c" * 400, "c" * 1024, "c" * 1025, "c" * 4000, "c" * 4001)
PLAN = {"telegram": telegram_plan.plan, "max": max_plan.plan}

Case = dict[str, Any]


def case(dice: random.Random) -> Case:
    """Mostly harmless, or nothing would ever get past the first item."""
    common = dice.choice(TYPES)
    odd = dice.choice((0.0, 0.05, 0.3))
    media = [item(dice, odd, common) for _ in range(dice.choice((1, 1, 2, 3, 9, 10, 11, 12, 21)))]
    return {
        "media": media,
        "parse_mode": dice.choice(("None", "HTML", "Markdown")),
        "text": dice.choice((None, None, "t", "t" * 1024, "t" * 1025, "t" * 3999)),
        "buttons": dice.choice(((), (), [[{"text": "Go", "url": "https://example.org"}]])),
        "large_image": dice.choice((None, "document")),
        "largest": dice.choice(({}, {}, {"image": 5, "file": 60 * MB}, {"image": 20 * MB, "video": 2000 * MB})),
        "url_allowed": dice.random() < 0.2,
    }


def item(dice: random.Random, odd: float, common: str) -> Case:
    def rarely(values: tuple[Any, ...], else_: Any = None) -> Any:
        return dice.choice(values) if dice.random() < odd else else_

    named = rarely(
        (
            {"url": "https://example.org/a.mp4?x=1"},
            {"file_id": "BAAC-x_1"},
            {"file_id": "file:///etc"},
            {"attachment_token": "t"},
        ),
        {"blob_ref": "sha256:0"},
    )
    found = {"type": common if dice.random() < 0.7 else dice.choice(TYPES), "caption": rarely(CAPTIONS)} | named
    if "blob_ref" in named:
        width, height = rarely(SIDES) or (None, None)
        facts = {"content_type": rarely(CONTENT_TYPES), "size_bytes": rarely(SIZES), "width": width, "height": height}
        found |= facts | {"file_name": rarely(("a.mp4", "A.MOV", "b.gif", "c"))}
    return {key: value for key, value in found.items() if value is not None}


def refused_by_plan(platform: str, case: Case) -> str | None:
    settings = {} if case["large_image"] is None else {"large_image": case["large_image"]}
    meta = SendMeta(
        parse_mode=case["parse_mode"],
        buttons=case["buttons"],
        largest=case["largest"],
        upload_policy={"image": "url_allowed"} if platform == "max" and case["url_allowed"] else {},
    )
    try:
        PLAN[platform](
            Channel("w", "c", platform, "-1", "a", "a", settings), media_of(case["media"]), case["text"], meta
        )
    except SendError as e:
        return e.message
    return None


@pytest.mark.parametrize("platform", ["telegram", "max"])
async def test_sql_and_plan_refuse_the_same(workspace: Autopost, platform: str) -> None:
    dice = random.Random(platform)
    cases = [case(dice) for _ in range(CASES)]
    judged = await workspace.sql(
        """
        select autopost.media_error(%s, c -> 'media', c ->> 'parse_mode', c ->> 'text',
                   case when c -> 'buttons' = '[]' then '{}' else jsonb_build_object('buttons', c -> 'buttons') end,
                   jsonb_strip_nulls(jsonb_build_object('large_image', c -> 'large_image')), p) ->> 'message' as problem
        from jsonb_array_elements(%s) with ordinality x (c, n),
             lateral jsonb_populate_record(autopost.policy_of(%s), jsonb_build_object('media_max_bytes',
                 jsonb_build_object(%s::text, c -> 'largest'))) p
        order by n""",
        platform, Jsonb(cases), workspace.workspace, platform,
    )  # fmt: skip
    refused = 0
    for each, row in zip(cases, judged, strict=True):
        by_plan = refused_by_plan(platform, each)
        assert (row["problem"] is None) == (by_plan is None), f"SQL: {row['problem']}\nplan: {by_plan}\n{each}"
        refused += by_plan is not None
    assert CASES / 5 < refused < CASES * 4 / 5, "the cases must show both"


async def test_a_file_that_is_gone_is_refused_by_its_own_code(workspace: Autopost) -> None:
    await workspace.channel()
    done = await workspace.push({"media": [{"type": "image", "blob_ref": "sha256:lost"}]})
    assert (done["enqueued"], done["failed"]) == (0, 1)
    (delivery,) = await workspace.deliveries("failed_permanent")
    assert delivery["last_error"]["code"] == "media_missing_origin"
    assert "there is no file sha256:lost" in delivery["last_error"]["message"]
