"""What is kept of an error: enough to understand it, and no secret."""

from __future__ import annotations

from typing import Any

import pytest
from job_rig import Jobs
from psycopg.types.json import Jsonb

pytestmark = pytest.mark.pg16

BOT = "5123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
# What people and libraries write, and what must not be in it any more.
SECRETS = [
    (f"POST https://api.telegram.org/bot{BOT}/sendMessage failed", BOT),
    (f"the token {BOT} is wrong", BOT),
    ("could not connect to postgresql://shop:hunter2@db.example.org/shop", "hunter2"),
    ("could not connect to postgresql://shop:p@ss@db.example.org/shop", "p@ss"),
    ("https://user:pa%2Fss@example.org/feed.xml answered 401", "pa%2Fss"),
    ("GET https://example.org/feed?access_token=abcdef123456&page=2", "abcdef123456"),
    ("GET https://example.org/feed?api_key=abcdef123456", "abcdef123456"),
    ("GET https://s3.example.org/b/o?X-Amz-Signature=0f3a9d&X-Amz-Expires=60", "0f3a9d"),
    ("Authorization: Bearer eyJhbGciOi.eyJzdWIi.SflKxwRJ", "eyJhbGciOi"),
    ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ('{"password": "hunter2", "user": "shop"}', "hunter2"),
    ('{"client_secret": "hunter two three"}', "two three"),
    ("{'Authorization': 'f9LHodD0cOKmT8'}", "f9LHodD0cOKmT8"),
    ("password=hunter2 host=db", "hunter2"),
    ("PGPASSWORD=hunter2 psql", "hunter2"),
    ("the secret vpush_abcdefghijklmnop was not found", "abcdefghijklmnop"),
    ("the key vkey_abcdefghijklmnop was not found", "abcdefghijklmnop"),
]
HARMLESS = [
    "the table public.items does not exist",
    "https://example.org/news/2027/03/01?page=2 answered 503",
    "12:30:45 is not a time, 2027-03-01T12:30:45Z is",
    "expected a token, found '<'",
]


async def redacted(jobs: Jobs, text: str) -> str:
    return str(await jobs.value("select core.redact_text(%s)", text))


@pytest.mark.parametrize(("text", "secret"), SECRETS, ids=[text[:40] for text, _ in SECRETS])
async def test_no_secret_reaches_the_errors(jobs: Jobs, text: str, secret: str) -> None:
    row = await jobs.begun()
    await jobs.came_to(row, "failed", error={"type": "X", "message": text})
    (told,) = await jobs.errors()
    job = await jobs.job(row["job_id"])
    (run,) = await jobs.runs(row["job_id"])
    for kept in (told["message"], told["details"], str(job["last_error"]), str(run["error"])):
        assert secret not in kept
        assert "***" in kept


@pytest.mark.parametrize("text", HARMLESS)
async def test_what_is_no_secret_is_left_as_it_is(jobs: Jobs, text: str) -> None:
    assert await redacted(jobs, text) == text


async def test_nor_does_one_that_lies_deeper(jobs: Jobs) -> None:
    """A body inside of a message inside of the details, its quotes escaped."""
    body = '{"access_token": "hunter two", "next": "fine"}'
    query = "select ops.record_error(%s, '{}', 'it failed', 400, %s)"
    await jobs.sql(query, jobs.workspace, Jsonb({"answer": body, "headers": {"Authorization": "Bearer abc.def"}}))
    (told,) = await jobs.errors()
    assert not [secret for secret in ("hunter", "two", "abc.def") if secret in told["details"]], told["details"]
    assert "fine" in told["details"]


async def test_what_is_redacted_stays_so(jobs: Jobs) -> None:
    for text, _ in SECRETS:
        once = await redacted(jobs, text)
        assert await redacted(jobs, once) == once


async def test_a_secret_at_the_cut_is_not_cut_in_half_but_gone(jobs: Jobs) -> None:
    text = "x" * 480 + f" {BOT}"
    kept = await jobs.value("select ops.short_text(%s, 500)", text)
    assert kept == "x" * 480 + " ***"


async def test_a_long_text_of_many_lines_becomes_a_short_one_of_one(jobs: Jobs) -> None:
    kept = await jobs.value("select ops.short_text(%s, 50)", "  first\r\n\t second\x07 " + "long " * 100000)
    assert kept.startswith("first second long")
    assert len(kept) <= 50


@pytest.mark.parametrize(
    ("context", "status", "expected"),
    [
        ({"workflow": "work", "node": "n", "op": "o", "trace_id": "t"}, 503, ("unknown", 503)),
        ({"kind": "upstream"}, 502, ("upstream", 502)),
        ({"kind": "nonsense"}, 429, ("rate_limit", 429)),
        ({}, 401, ("auth", 401)),
        (None, None, ("unknown", 500)),
        ([1], 99999, ("unknown", 500)),
        ({"job_id": "no uuid", "workflow": "w" * 1000, "retryable": "perhaps"}, -1, ("unknown", 500)),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
async def test_to_record_an_error_is_never_a_second_one(
    jobs: Jobs, context: Any, status: int | None, expected: tuple[str, int]
) -> None:
    await jobs.sql(
        "select ops.record_error(%s, %s, null, %s, %s)", jobs.workspace, Jsonb(context), status, Jsonb({"any": "thing"})
    )
    (told,) = await jobs.errors()
    assert (told["kind"], told["status_code"]) == expected
    assert (told["message"], told["details"], told["retryable"]) == ("unknown error", '{"any": "thing"}', False)


async def test_an_error_that_is_none_leaves_none(jobs: Jobs) -> None:
    for error in (None, "text", [1], {}):
        row = await jobs.begun()
        assert await jobs.came_to(row, "failed", error=error) == "dead"
    assert {told["message"] for told in await jobs.errors()} == {"the job failed"}
