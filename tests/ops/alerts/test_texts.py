"""How alerts read: short, in the reader's language, with the command that helps."""

from __future__ import annotations

from typing import Any

import pytest

from vestnik.ops.alerts import texts
from vestnik.ops.alerts.texts import headline, text_of, title_of

SINCE = "2027-03-01T09:05:00+00:00"


def notice(alert: str, news: str = "raised", severity: str = "critical", subject: str = "", **details: Any) -> Any:
    return {
        "alert": alert, "subject": subject, "news": news, "severity": severity, "summary": f"a summary of {alert}",
        "details": details, "episode": 1, "raised_at": SINCE, "cleared_at": "2027-03-01T10:30:00+00:00", "raises": 1,
    }  # fmt: skip


DEAD = notice("dead", count=3, code="502", channels=2)
DISK = notice("disk", "repeated", "warning", host="box", path="/data", free_percent=4.5)
SOURCE = notice("source", "cleared", "warning", "feed", source_id="feed", failures=4)


def test_a_message_in_english() -> None:
    assert (
        text_of([DEAD, DISK, SOURCE], "shop", "en")
        == """shop

🔴 3 deliveries given up after every try; most often: 502
since 01.03 09:05 UTC
→ vestnik requeue -w shop --dry-run

🟡 still: only 4.5 % of the disk is free (/data on box)
since 01.03 09:05 UTC
→ df -h

✅ over: source feed brings nothing: 4 failures in a row
it was so from 01.03 09:05 to 01.03 10:30 UTC"""
    )


def test_a_message_in_russian() -> None:
    assert (
        text_of([DEAD, DISK, SOURCE], "shop", "ru")
        == """shop

🔴 3 доставки не удались после всех попыток; чаще всего: 502
с 01.03 09:05 UTC
→ vestnik requeue -w shop --dry-run

🟡 всё ещё: на диске свободно всего 4.5 % (/data на box)
с 01.03 09:05 UTC
→ df -h

✅ позади: источник feed молчит: ошибок подряд 4
было с 01.03 09:05 до 01.03 10:30 UTC"""
    )


def test_the_title_names_the_first_and_how_many_more() -> None:
    assert title_of([DEAD, DISK], "shop", "ru") == (
        "Vestnik · shop: 3 доставки не удались после всех попыток; чаще всего: 502 и ещё 1"
    )
    assert (
        title_of([SOURCE], "*", "en") == "Vestnik · the service: over: source feed brings nothing: 4 failures in a row"
    )


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 доставка не удалась"), (22, "22 доставки не удались"), (11, "11 доставок не удались")]
)
def test_russian_counts_agree(count: int, words: str) -> None:
    assert headline(notice("dead", count=count, code="502", channels=1), "ru").startswith(words)


def test_an_alert_without_words_of_its_own_says_its_summary() -> None:
    assert headline(notice("heard_of_nowhere"), "ru") == "a summary of heard_of_nowhere"
    assert headline(notice("dead"), "ru") == "a summary of dead"


def test_many_alerts_are_one_message_that_every_platform_takes() -> None:
    many = [
        notice("paused_channels", subject="s" * 200, count=9, channels=["c" * 200] * 9, limit=3) for _ in range(500)
    ]
    for language in ("en", "ru"):
        text = text_of(many, "w" * 64, language)
        assert len(text) < 4000
        assert "492" in text
        assert len(title_of(many, "w" * 64, language)) < 400


def test_each_language_has_each_word() -> None:
    for alert, words in texts._WORDS.items():
        assert set(words) == {"en", "ru"}, alert


def test_a_jump_of_the_clock_is_told_with_its_years() -> None:
    jump = notice(
        "clock",
        **{
            "from": "2026-11-19T12:00:00+00:00",
            "to": "2027-11-19T15:00:00+03:00",
            "until": "2027-11-20T12:00:00+00:00",
        },
    )
    assert "from 19.11.2026 12:00 to 19.11.2027 12:00 UTC" in headline(jump, "en")
    assert "до 20.11.2027 12:00 UTC" in headline(jump, "ru")
