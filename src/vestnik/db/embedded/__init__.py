"""The embedded database: a real PostgreSQL from a wheel, kept in the data folder."""

from vestnik.db.embedded.server import EmbeddedServer, Status

__all__ = ["EmbeddedServer", "Status"]
