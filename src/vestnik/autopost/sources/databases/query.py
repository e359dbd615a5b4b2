"""A query of the user's: one statement that reads, with ``:watermark`` and ``:limit``, as each driver wants it."""

from __future__ import annotations

import re
from typing import Final

from vestnik.autopost.sources.databases.dsn import Engine

PARAMETERS: Final = ("watermark", "limit")
_READS: Final = {"select", "with", "values", "table"}

# What is quoted or commented out is copied as it stands; the databases disagree on what that is.
_COMMENT: Final = r"--[^\n]*|/\*.*?\*/"
_STRING: Final = r"'(?:[^']|'')*'"
_BACKSLASHED: Final = r"'(?:[^'\\]|''|\\.)*'"
_NAMED: Final = r'"(?:[^"]|"")*"'
_QUOTED: Final[dict[Engine, str]] = {
    "postgresql": rf"{_COMMENT}|\bE{_BACKSLASHED}|{_STRING}|{_NAMED}|\$(?P<dollar>\w*)\$.*?\$(?P=dollar)\$",
    "mysql": rf'{_COMMENT}|\#[^\n]*|{_BACKSLASHED}|"(?:[^"\\]|""|\\.)*"|`[^`]*`',
    "sqlite": rf"{_COMMENT}|{_STRING}|{_NAMED}|`[^`]*`|\[[^\]]*\]",
}
_TOKEN: Final = {
    engine: re.compile(
        rf"(?P<quoted>{quoted})|(?P<colons>::|:=)|:(?P<name>[A-Za-z_]\w*)|(?P<other>[\w]+|.)",
        re.DOTALL | re.IGNORECASE,
    )
    for engine, quoted in _QUOTED.items()
}
_PLACE: Final[dict[Engine, str]] = {"postgresql": "%({})s", "mysql": "%({})s", "sqlite": ":{}"}


def translated(query: str, engine: Engine) -> str:
    """The query for the driver; ValueError says why it is not one that may run."""
    out: list[str] = []
    words: list[str] = []
    named: set[str] = set()
    for token in _TOKEN[engine].finditer(query.strip().rstrip(";").rstrip()):
        text, name = token[0], token["name"]
        if engine == "mysql" and text.startswith(("/*!", "/*M!")):
            raise ValueError("has a comment that the server would run")
        if name:
            named.add(_known(name))
            text = _PLACE[engine].format(name)
        elif engine != "sqlite":
            text = text.replace("%", "%%")  # it is the drivers' own sign for a parameter
        if token["other"]:
            _refuse(token["other"])
            words.append(token["other"].lower())
        out.append(text)
    first = next((word for word in words if re.match(r"\w", word)), "")
    if first not in _READS:
        raise ValueError(f"must be one statement that reads, and begins with {first or 'nothing'}")
    if missing := [f":{name}" for name in PARAMETERS if name not in named]:
        raise ValueError(f"must use {' and '.join(missing)}")
    return "".join(out)


def translatable(query: str, engine: Engine | None) -> None:
    """When only the run will show which database it is, any that could take the query will do."""
    faults: list[ValueError] = []
    for candidate in (engine,) if engine else tuple(_QUOTED):
        try:
            translated(query, candidate)
        except ValueError as e:
            faults.append(e)
        else:
            return
    raise faults[0]


def _known(name: str) -> str:
    if name not in PARAMETERS:
        raise ValueError(f"knows :watermark and :limit, not :{name}")
    return name


def _refuse(text: str) -> None:
    if text == ";":
        raise ValueError("must be one statement, without a semicolon inside")
    if text.lower() == "into":
        raise ValueError("must only read: it has an INTO")
    if text in "'\"`":
        raise ValueError("has a quote that is never closed")
