"""Credential bindings: which token a channel's ``auth_ref`` stands for."""

from __future__ import annotations

import time
from collections.abc import Callable

from vestnik.db.pool import Connection, Pool, call
from vestnik.errors import ConfigError, NotFound
from vestnik.ops.secrets.box import SecretBox

FRESH_FOR = 5.0  # seconds: how long a rotated token may still be used by a dispatcher that has just read the old one;
# autopost.token_grace() is longer
MOST_NAMES = 10  # in one message


class Credentials:
    def __init__(self, pool: Pool, box: SecretBox, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._box, self._clock = pool, box, clock
        self._known: dict[tuple[str, str, str], tuple[float, str]] = {}

    @property
    def box(self) -> SecretBox:
        return self._box

    async def resolve(self, workspace_id: str, platform: str, auth_ref: str) -> str:
        """The token, as adapters ask for it; raises NotFound."""
        name = (workspace_id, platform, auth_ref)
        read_at, token = self._known.get(name, (float("-inf"), ""))
        if self._clock() - read_at < FRESH_FOR:
            return token
        token = await self._read(*name)
        self._known[name] = (self._clock(), token)
        return token

    async def verify(self) -> None:
        """Raises ConfigError, with their names, when some of what is stored was encrypted with another key."""
        query = (
            "select workspace_id || '/' || platform || '/' || auth_ref as name, secret from core.credential_bindings"
            " where secret is not null order by 1"
        )
        names = [row["name"] for row in await call(self._pool, query) if self._unlocked(row["secret"]) is None]
        if names:
            others = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            raise ConfigError(
                f"encrypted with another key: {', '.join(names[:MOST_NAMES])}{others}",
                hint="set VESTNIK_SECRET_KEY to the key that was in use; if it is lost, empty core.credential_bindings"
                " (vestnik db psql) and apply the declaration again",
            )

    async def store(self, connection: Connection, workspace_id: str, platform: str, auth_ref: str, token: str) -> bool:
        """In the caller's transaction; False when that very token was stored already. Raises ConfigError instead of replacing
        what was encrypted with another key: that is the key of those who run."""
        sealed = await self._stored(connection, workspace_id, platform, auth_ref)
        if sealed is not None and self._box.unlock(sealed) == token:
            return False
        await connection.execute(
            "insert into core.credential_bindings (workspace_id, platform, auth_ref, secret, rotated_at)"
            " values (%s, %s, %s, %s, null)"
            " on conflict (workspace_id, platform, auth_ref) do update"
            " set secret = excluded.secret, secret_ref = 'stored', rotated_at = now(), updated_at = now()",
            (workspace_id, platform, auth_ref, self._box.lock(token)),
        )
        self._known.pop((workspace_id, platform, auth_ref), None)
        return True

    async def _read(self, workspace_id: str, platform: str, auth_ref: str) -> str:
        async with self._pool.connection() as connection:
            sealed = await self._stored(connection, workspace_id, platform, auth_ref)
        if sealed is None:
            raise NotFound(f"no {platform} credential {auth_ref!r} in workspace {workspace_id!r}")
        return self._box.unlock(sealed)

    def _unlocked(self, sealed: bytes) -> str | None:
        try:
            return self._box.unlock(sealed)
        except ConfigError:
            return None

    async def _stored(self, connection: Connection, workspace_id: str, platform: str, auth_ref: str) -> bytes | None:
        found = await connection.execute(
            "select secret from core.credential_bindings"
            " where workspace_id = %s and platform = %s and auth_ref = %s and secret is not null",
            (workspace_id, platform, auth_ref),
        )
        row = await found.fetchone()
        return row["secret"] if row else None
