"""The SQL that this program brings: append-only migrations, and functions applied anew when changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from vestnik.errors import ConfigError

SQL_ROOT = Path(__file__).parent.parent / "sql"
_MIGRATION = re.compile(r"(\d{4})_[a-z0-9_]+")


@dataclass(frozen=True)
class SqlFile:
    """``name`` is what people see: ``0001_workspaces``, or ``functions/autopost/claim.sql``."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        return sha256(self.text.encode()).hexdigest()


def read_migrations(root: Path = SQL_ROOT) -> dict[int, SqlFile]:
    found: dict[int, SqlFile] = {}
    for path in sorted((root / "migrations").glob("*.sql")):
        match = _MIGRATION.fullmatch(path.stem)
        if match is None:
            raise ConfigError(f"{path.name} is not a name of a migration", hint="call it NNNN_what.sql")
        number = int(match[1])
        if number in found:
            raise ConfigError(f"two migrations have the number {number}: {found[number].name}, {path.stem}")
        found[number] = SqlFile(path.stem, path.read_text("utf-8"))
    return found


def read_functions(root: Path = SQL_ROOT) -> dict[str, SqlFile]:
    """In the order of their paths, which is the order they are applied in."""
    folder = root / "functions"
    names = sorted(path.relative_to(root).as_posix() for path in folder.rglob("*.sql"))
    return {name: SqlFile(name, (root / name).read_text("utf-8")) for name in names}
