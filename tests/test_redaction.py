"""Nothing that must stay secret is kept of a text, and the database and the program mask the same."""

from __future__ import annotations

import io
import json
import logging
import random
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog

from vestnik import redaction
from vestnik.db.schema_files import read_functions
from vestnik.redaction import DEEPEST, MASK, redact, redact_value

CORPUS: dict[str, list[Any]] = json.loads((Path(__file__).parent / "redaction_corpus.json").read_text("utf-8"))
HARMLESS: list[str] = CORPUS["harmless"]
SECRET: list[tuple[str, str]] = [
    (text, kept) for name, cases in CORPUS.items() if name != "harmless" for text, kept in cases
]
BOT = "5123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
# Each repeated for as long as there is room: what makes a careless expression go back and forth.
ENDLESS = [
    "a", "1", " ", "\\", "a@", "a.", "a@a.", "://a:", "://a:b/c", "token", 'token="', "token   ", "+7 9", "8 916 ",
    "Bearer ", "eyJ", "=a", "%40a.", '"x"@', "12345:", "-----BEGIN PRIVATE KEY-----", "привет ", "\u200b", "tel. 123",
    "--a", "-u a:", "<token", "<token>", "pass\\", "«", "пaроль: «", "%25", "1234 ",
]  # fmt: skip


def rewritten(connection: psycopg.Connection[Any], texts: list[str]) -> list[str]:
    query = "select array(select core.redact_text(x) from unnest(%s::text[]) with ordinality u (x, n) order by n)"
    return list(connection.execute(query, (texts,)).fetchone()[0])  # type: ignore[index]


@pytest.fixture
def sql(worker_database: str) -> Any:
    with psycopg.connect(worker_database, autocommit=True) as connection:
        yield connection


def test_there_are_enough_cases() -> None:
    assert len(SECRET) >= 120 <= len(SECRET) + len(HARMLESS)
    assert len(HARMLESS) > 40


def test_what_is_secret_is_masked() -> None:
    assert [(text, redact(text)) for text, _ in SECRET] == SECRET_PAIRS


def test_what_is_harmless_stays_as_it_is() -> None:
    assert [redact(text) for text in HARMLESS] == HARMLESS


@pytest.mark.pg16
def test_the_database_masks_the_same(sql: psycopg.Connection[Any]) -> None:
    assert rewritten(sql, [text for text, _ in SECRET]) == [kept for _, kept in SECRET]
    assert rewritten(sql, HARMLESS) == HARMLESS


@pytest.mark.pg16
def test_the_two_agree_on_whatever_comes_together(sql: psycopg.Connection[Any]) -> None:
    chance = random.Random(20270301)
    pieces = [text for text, _ in SECRET] + HARMLESS
    pieces += [
        *" \n\\\"'=:@+()78.,-*[]{}<>&?;_/~|",
        "***",
        "\u200b",
        "\xa0",
        "ſ",
        "\u212a",
        "İ",
        "%40",
        "token",
        "key=",
    ]
    texts = ["".join(_part(chance, chance.choice(pieces)) for _ in range(chance.randint(1, 6))) for _ in range(1500)]
    assert rewritten(sql, texts) == [redact(text) for text in texts]


def _part(chance: random.Random, piece: str) -> str:
    """Whole, or cut anywhere."""
    return piece if chance.random() < 0.6 else piece[chance.randrange(len(piece)) :][: chance.randint(1, 40)]


def test_what_is_redacted_stays_so() -> None:
    assert [redact(kept) for _, kept in SECRET] == [kept for _, kept in SECRET]


def test_both_languages_have_the_very_same_rules() -> None:
    written = read_functions()["functions/core/redact.sql"].text
    body = written[: written.index("create or replace function core.plain_signs")]
    replaced = re.findall(r"regexp_replace\(found,\s*(.*?),\s*'(\S*)', '(gi?)'\)", body, re.DOTALL)
    in_sql = [
        ("".join(re.findall(r"\$re\$(.*?)\$re\$", pattern)), mask, flags == "gi") for pattern, mask, flags in replaced
    ]
    in_python = [(rule.pattern, mask, bool(rule.flags & re.IGNORECASE)) for rule, mask in redaction._RULES]
    assert in_sql == in_python


def test_what_looks_harmless_at_a_glance_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most texts are asked one question only. It must be one that no secret answers with no."""
    quick = [redact(text) for text, _ in SECRET]
    monkeypatch.setattr(redaction, "_IS_SUSPICIOUS", re.compile(""))
    assert [redact(text) for text, _ in SECRET] == quick


@pytest.mark.parametrize("unit", ENDLESS)
def test_a_long_text_takes_no_longer_than_it_is(unit: str) -> None:
    """A rule that goes back and forth would need minutes for this, not a moment."""
    text = (unit * (1 << 17))[: 1 << 17]
    assert len(redact(text + "\x01")) <= len(text) + 4


def test_nor_does_a_megabyte_of_all_of_it() -> None:
    text = "".join((unit * (1 << 16))[: (1 << 20) // len(ENDLESS)] for unit in ENDLESS)
    assert MASK in redact(text)


@pytest.mark.pg16
def test_nor_does_it_in_the_database(sql: psycopg.Connection[Any]) -> None:
    sql.execute("set statement_timeout = '60s'")  # each takes a tenth of a second
    for unit in ENDLESS:
        text = (unit * (1 << 14))[: 1 << 14] + "\x01"
        assert rewritten(sql, [text]) == [redact(text)]


@pytest.mark.pg16
def test_a_megabyte_full_of_secrets_is_nothing_special_in_the_database(sql: psycopg.Connection[Any]) -> None:
    sql.execute("set statement_timeout = '120s'")
    text = ("не найден чат; " * 35 + "ivan@example.org, +7 916 123-45-67; ") * 1900
    assert rewritten(sql, [text]) == [redact(text)]


NESTED = {
    "status": 400, "ok": False, "nothing": None, "text": "call +79161234567",
    "headers": {"Authorization": "abc", "Cookie": ["a", "b"], "Date": "today"},
    "list": [{"name": "X-Api-Key", "value": "abc"}, {"name": "Date", "value": "abc"}, ["ivan@example.org", 5]],
    "password": 12345, "has_password": True, "token": "", "secret": {"deep": [1]}, "tokens": 7,
    "phone": 79161234567, "+79161234567": 1, "answer": '{"access_token": "hunter two"}',
}  # fmt: skip
MASKED = {
    "status": 400, "ok": False, "nothing": None, "text": "call ***",
    "headers": {"Authorization": MASK, "Cookie": MASK, "Date": "today"},
    "list": [{"name": "X-Api-Key", "value": MASK}, {"name": "Date", "value": "abc"}, [MASK, 5]],
    "password": MASK, "has_password": True, "token": "", "secret": MASK, "tokens": 7,
    "phone": MASK, MASK: 1, "answer": '{"access_token": "***"}',
}  # fmt: skip


@pytest.mark.pg16
def test_values_are_redacted_by_their_texts_and_by_their_names(sql: psycopg.Connection[Any]) -> None:
    assert redact_value(NESTED) == MASKED
    assert sql.execute("select core.redact(%s)", (json.dumps(NESTED),)).fetchone() == (MASKED,)


@pytest.mark.pg16
@pytest.mark.parametrize("value", ["text", "+79161234567", 5, True, None, [], {}, [[]]], ids=repr)
def test_any_value_is_taken(sql: psycopg.Connection[Any], value: Any) -> None:
    assert sql.execute("select core.redact(%s)", (json.dumps(value),)).fetchone() == (redact_value(value),)


@pytest.mark.pg16
def test_nothing_is_nested_too_deep(sql: psycopg.Connection[Any]) -> None:
    """What lies deeper than any answer of a platform is masked as a whole."""
    deep = "[" * 2000 + '"+79161234567"' + "]" * 2000
    (told,) = sql.execute("select core.redact(%s)::text", (deep,)).fetchone()  # type: ignore[misc]
    assert told == "[" * DEEPEST + f'"{MASK}"' + "]" * DEEPEST
    assert json.dumps(redact_value(json.loads("[" * 200 + "]" * 200))) == told


@pytest.mark.pg16
def test_a_secret_at_the_cut_is_gone_and_not_halved(sql: psycopg.Connection[Any]) -> None:
    for secret in (
        BOT,
        "+79161234567",
        "ivan.petrov@example.org",
        "Bearer f9LHodD0cOKmT8f9LHodD0cOKmT8",
        "vkey_abcdefghijkl",
    ):
        for room in range(480, 500):
            text = "x" * room + f" {secret} is refused"
            error = json.dumps({"message": text, "raw": {"description": text}})
            (kept,) = sql.execute("select autopost.normal_error(%s, 'PERMANENT')", (error,)).fetchone()  # type: ignore[misc]
            assert kept["message"] == ("x" * room + f" {redact(secret)} is refused")[:500]
            assert secret[-9:] not in kept["raw"]


@pytest.mark.parametrize("cut", range(4, len(BOT)))
def test_what_somebody_else_has_cut_already_shows_nothing_of_a_token(cut: int) -> None:
    """Of a bot's token the number is public; not one sign of the rest may stay."""
    kept = redact("x" * 400 + f" Bearer {BOT}"[: cut + 8])
    assert "AA" not in kept
    assert "AAH" not in redact(f"x {BOT[:cut]}")


def test_log_lines_are_redacted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    before = structlog.get_config()
    try:
        from vestnik.log import configure, get_log

        configure("info", "json")
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(out))
        log = get_log()
        log.warning("send.failed", error=f"no ivan@example.org at /bot{BOT}/x", detail={"Authorization": "abc"}, n=5)
        try:
            raise ValueError(f"postgresql://shop:hunter2@db/ and {BOT}")
        except ValueError:
            log.exception("send.crashed")
    finally:
        structlog.configure(**before)
        logging.getLogger("psycopg.pool").setLevel(logging.NOTSET)
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["error"], first["detail"], first["n"]) == ("no *** at /bot***/x", {"Authorization": MASK}, 5)
    assert first["action"] == "send.failed"
    assert "hunter2" not in second["exception"] and BOT not in second["exception"]
    assert "ValueError" in second["exception"]


SECRET_PAIRS = [(text, kept) for text, kept in SECRET]
