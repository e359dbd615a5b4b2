"""How alerts read in a chat or a mail: short, in the target's language, with the command that helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from vestnik.ops.alerts.contract import Language, Notice

MOST_SHOWN = 8
LONGEST_LINE = 250
_MARKS = {"critical": "🔴", "warning": "🟡"}


def title_of(notices: Sequence[Notice], workspace_id: str, language: Language) -> str:
    """One line: the subject of a mail."""
    on = [n for n in notices if n["news"] != "cleared"]
    first = headline(on[0] if on else notices[0], language)
    more = len(notices) - 1
    rest = {"en": f" and {more} more", "ru": f" и ещё {more}"}[language] if more else ""
    over = "" if on else {"en": "over: ", "ru": "позади: "}[language]
    return f"Vestnik · {_where(workspace_id, language)}: {over}{first}{rest}"


def text_of(notices: Sequence[Notice], workspace_id: str, language: Language) -> str:
    """All of it, or the first ones and how many more there are."""
    parts = [_where(workspace_id, language)]
    parts += [_told(notice, workspace_id, language) for notice in notices[:MOST_SHOWN]]
    if len(notices) > MOST_SHOWN:
        more = len(notices) - MOST_SHOWN
        all_of_them = f"vestnik alerts list -w {_quoted(workspace_id)}"
        parts.append({"en": f"… and {more} more: {all_of_them}", "ru": f"… и ещё {more}: {all_of_them}"}[language])
    return "\n\n".join(parts)


def headline(notice: Notice, language: Language) -> str:
    """What is wrong; of an alert that has no words here, its own summary."""
    words = _WORDS.get(notice["alert"])
    try:
        said = words[language](notice["details"]) if words else notice["summary"]
    except (KeyError, TypeError, ValueError):
        said = notice["summary"]
    return str(said)[:LONGEST_LINE]


def help_for(notice: Notice, workspace_id: str) -> str:
    """The command that shows more or puts it right."""
    helps = _HELPS.get(notice["alert"], "vestnik alerts list -w {ws}")
    return helps.format(ws=_quoted(workspace_id), subject=_quoted(notice["subject"]))


def trial_text(workspace_id: str, target_id: str, language: Language) -> str:
    return {
        "en": f"A test from Vestnik: alerts of {_where(workspace_id, 'en')} will arrive here ({target_id}).",
        "ru": f"Проверка связи: сюда ({target_id}) будут приходить оповещения Вестника: {_where(workspace_id, 'ru')}.",
    }[language]


def _told(notice: Notice, workspace_id: str, language: Language) -> str:
    said = headline(notice, language)
    since = _moment(notice["raised_at"])
    if notice["news"] == "cleared":
        until = _moment(notice["cleared_at"])
        lasted = {"en": f"it was so from {since} to {until} UTC", "ru": f"было с {since} до {until} UTC"}[language]
        return f"✅ {_over(language)} {said}\n{lasted}"
    still = {"en": "still: ", "ru": "всё ещё: "}[language] if notice["news"] == "repeated" else ""
    begun = {"en": f"since {since} UTC", "ru": f"с {since} UTC"}[language]
    return f"{_MARKS[notice['severity']]} {still}{said}\n{begun}\n→ {help_for(notice, workspace_id)}"


def _over(language: Language) -> str:
    return {"en": "over:", "ru": "позади:"}[language]


def _where(workspace_id: str, language: Language) -> str:
    return {"en": "the service", "ru": "сервис"}[language] if workspace_id == "*" else workspace_id


def _moment(value: Any, form: str = "%d.%m %H:%M") -> str:
    """Told in UTC."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert isinstance(moment, datetime)
    return moment.astimezone(UTC).strftime(form)


def _dated(value: Any) -> str:
    return _moment(value, "%d.%m.%Y %H:%M")


def _quoted(word: str) -> str:
    return word if word.replace("-", "").replace("_", "").replace(".", "").isalnum() else f"'{word}'"


def _plural(count: int, one: str, few: str, many: str) -> str:
    """Russian: 1 пост, 2 поста, 5 постов."""
    if count % 10 == 1 and count % 100 != 11:
        return f"{count} {one}"
    return f"{count} {few if count % 10 in (2, 3, 4) and count % 100 not in (12, 13, 14) else many}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _list(names: Sequence[str], count: int) -> str:
    shown = ", ".join(name[:40] for name in names[:5])
    return f"{shown}, …" if count > len(names[:5]) else shown


def _deliveries(d: Details) -> str:
    return f"{d['count']} {'delivery' if d['count'] == 1 else 'deliveries'}"


def _dostavki(d: Details) -> str:
    return _plural(d["count"], "доставка", "доставки", "доставок")


def _verb(d: Details, one: str, many: str) -> str:
    return one if d["count"] % 10 == 1 and d["count"] % 100 != 11 else many


def _minutes(seconds: float) -> int:
    return round(seconds / 60)


Details = Mapping[str, Any]
Words = Mapping[Language, Callable[[Details], str]]

_WORDS: Mapping[str, Words] = {
    "dead": {
        "en": lambda d: f"{_deliveries(d)} given up after every try; most often: {d['code']}",
        "ru": lambda d: (
            f"{_dostavki(d)} {_verb(d, 'не удалась', 'не удались')} после всех попыток; чаще всего: {d['code']}"
        ),
    },
    "failed_permanent": {
        "en": lambda d: f"{_deliveries(d)} refused within {_minutes(d['within'])} min; most often: {d['code']}",
        "ru": lambda d: (
            f"{_dostavki(d)} {_verb(d, 'отклонена', 'отклонены')} за {_minutes(d['within'])} мин; чаще всего: {d['code']}"
        ),
    },
    "paused_channels": {
        "en": lambda d: f"{_counted(d['count'], 'channel')} paused: {_list(d['channels'], d['count'])}",
        "ru": lambda d: (
            f"на паузе {_plural(d['count'], 'канал', 'канала', 'каналов')}: {_list(d['channels'], d['count'])}"
        ),
    },
    "channel_disabled": {
        "en": lambda d: f"channel {d['channel_id']} is switched off: refused {d['error_streak']} times in a row",
        "ru": lambda d: f"канал {d['channel_id']} отключён: отказов подряд {d['error_streak']}",
    },
    "waiting": {
        "en": lambda d: (
            f"{_counted(d['count'], 'channel')} stuck since {_moment(d['since'])} UTC, nothing in the way:"
            f" {_list(d['channels'], d['count'])}; is a dispatcher running?"
        ),
        "ru": lambda d: (
            f"{_plural(d['count'], 'канал стоит', 'канала стоят', 'каналов стоят')} с {_moment(d['since'])} UTC"
            f" без причины: {_list(d['channels'], d['count'])}; работает ли диспетчер?"
        ),
    },
    "source": {
        "en": lambda d: (
            f"source {d['source_id']} brings nothing: "
            + (f"{d['failures']} failures in a row" if d["failures"] else "nobody reads it")
        ),
        "ru": lambda d: (
            f"источник {d['source_id']} молчит: "
            + (f"ошибок подряд {d['failures']}" if d["failures"] else "его никто не читает")
        ),
    },
    "jobs_dead": {
        "en": lambda d: f"{_counted(d['count'], 'job')} {d['kind']} failed for good",
        "ru": lambda d: (
            f"{_plural(d['count'], 'задание', 'задания', 'заданий')} {d['kind']} без успеха после всех попыток"
        ),
    },
    "alert_target": {
        "en": lambda d: f"alerts do not reach {d['target_id']} ({d['kind']}): {d['code']}",
        "ru": lambda d: f"оповещения не доходят до {d['target_id']} ({d['kind']}): {d['code']}",
    },
    "webhook": {
        "en": lambda d: f"webhook {d['webhook_id']} does not answer: {d.get('code', 'given up')}",
        "ru": lambda d: f"вебхук {d['webhook_id']} не отвечает: {d.get('code', 'попытки исчерпаны')}",
    },
    "autopost.proof": {
        "en": lambda d: f"what happened and what the rows say differ: {_counted(d['count'], 'contradiction')}",
        "ru": lambda d: (
            "журнал и строки расходятся: " + _plural(d["count"], "противоречие", "противоречия", "противоречий")
        ),
    },
    "autopost.integrity": {
        "en": lambda d: f"{_counted(d['count'], 'row')} that should hold together and do not",
        "ru": lambda d: f"нарушена связность данных: {_plural(d['count'], 'строка', 'строки', 'строк')}",
    },
    "oldest_xmin": {
        "en": lambda d: f"a transaction is open since {_moment(d['since'])} UTC and keeps tables from being cleaned",
        "ru": lambda d: f"транзакция открыта с {_moment(d['since'])} UTC и мешает очистке таблиц",
    },
    "disk": {
        "en": lambda d: f"only {d['free_percent']:g} % of the disk is free ({d['path']} on {d['host']})",
        "ru": lambda d: f"на диске свободно всего {d['free_percent']:g} % ({d['path']} на {d['host']})",
    },
    "object_store": {
        "en": lambda d: f"the object store does not work: {d['error']}",
        "ru": lambda d: f"хранилище файлов не работает: {d['error']}",
    },
    "default_partition": {
        "en": lambda d: "events lie in the default partition",
        "ru": lambda d: "события лежат в запасной секции",
    },
    "clock": {
        "en": lambda d: (
            f"the clock jumped from {_dated(d['from'])} to {_dated(d['to'])} UTC, or nothing ran between:"
            f" nothing old is removed until {_dated(d['until'])} UTC"
        ),
        "ru": lambda d: (
            f"часы перескочили с {_dated(d['from'])} на {_dated(d['to'])} UTC, или сервис стоял:"
            f" старое не удаляется до {_dated(d['until'])} UTC"
        ),
    },
    "retention_failed": {
        "en": lambda d: f"what is old is not removed: the rule {d['rule']} fails ({d['error']})",
        "ru": lambda d: f"старое не удаляется: правило {d['rule']} не выполняется ({d['error']})",
    },
}
_HELPS = {
    "dead": "vestnik requeue -w {ws} --dry-run",
    "failed_permanent": "vestnik events {ws} --errors",
    "paused_channels": "vestnik events {ws} --errors",
    "channel_disabled": "vestnik doctor -w {ws}; vestnik resume {ws} {subject}",
    "waiting": "vestnik queue -w {ws}",
    "source": "vestnik sources runs {ws} {subject}",
    "jobs_dead": "vestnik jobs list -w {ws} --status dead --kind {subject}",
    "alert_target": "vestnik alerts test {ws} {subject}",
    "webhook": "vestnik webhooks list -w {ws}",
    "autopost.proof": "vestnik findings {ws}",
    "autopost.integrity": "vestnik findings {ws}",
    "disk": "df -h",
    "clock": "vestnik doctor",
    "retention_failed": "vestnik retention status -w {ws}",
    "object_store": "vestnik alerts list -w {ws}",
    "default_partition": "vestnik db psql -- -c 'select autopost.drain_default_partition()'",
}
