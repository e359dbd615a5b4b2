"""Where a database is. A password never leaves here in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qs, unquote, urlsplit

Engine = Literal["postgresql", "mysql", "sqlite"]
_ENGINES: Final[Mapping[str, Engine]] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_MYSQL_OPTIONS: Final = {"unix_socket", "ssl_ca"}


@dataclass(frozen=True, slots=True)
class Dsn:
    engine: Engine
    text: str = field(repr=False)
    host: str = ""
    port: int | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    path: str = ""  # the database's name, or the file
    options: Mapping[str, str] = field(default_factory=dict)

    def redacted(self, words: str) -> str:
        """What a driver says, without the secret, in one line."""
        for secret in (self.text, self.password):
            words = words.replace(secret, "***") if secret else words
        return " ".join(words.split())[:300]


def parse_dsn(text: str) -> Dsn:
    """ValueError says what is wrong with it, and not what is in it."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    except ValueError:
        raise ValueError("is not an address of a database") from None
    engine = _ENGINES.get(parts.scheme)
    if engine is None:
        raise ValueError("must begin with postgresql://, mysql:// or sqlite:///")
    path = unquote(parts.path)
    if engine == "sqlite" and (parts.netloc or not path.startswith("/")):
        raise ValueError("must name the whole path of a file, like sqlite:///srv/shop.db")
    if engine == "mysql" and (len(path) < 2 or (unknown := options.keys() - _MYSQL_OPTIONS)):
        raise ValueError(f"knows no {', '.join(sorted(unknown))}" if len(path) > 1 else "names no database")
    return Dsn(
        engine,
        text.strip(),
        parts.hostname or "",
        port,
        unquote(parts.username or ""),
        unquote(parts.password or "") or options.get("password", ""),
        path if engine == "sqlite" else path.removeprefix("/"),
        options,
    )
