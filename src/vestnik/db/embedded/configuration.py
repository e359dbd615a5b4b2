"""The server's settings, written anew at every start, on top of what initdb found out about this machine.

``ALTER SYSTEM`` has the last word.
"""

from __future__ import annotations

from pathlib import Path

_FOR_A_SMALL_SERVICE = {
    "max_connections": "100",
    "shared_buffers": "256MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "128MB",
    "effective_cache_size": "1GB",
    "random_page_cost": "1.1",
    "jit": "off",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "min_wal_size": "256MB",
    "checkpoint_timeout": "15min",
    "max_wal_senders": "2",
    "max_replication_slots": "2",
    # Queue tables turn over fast: vacuum them after few dead rows, often, and without long naps.
    "autovacuum_naptime": "20s",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_analyze_scale_factor": "0.05",
    "autovacuum_vacuum_cost_limit": "1000",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] %q%u %a ",
    "log_lock_waits": "on",
    # One file for each day of the week, begun anew when its day comes round.
    "logging_collector": "on",
    "log_filename": "postgresql-%a.log",
    "log_truncate_on_rotation": "on",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
}

_WITHOUT_DURABILITY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "wal_compression": "off",
    "max_wal_size": "256MB",
    "min_wal_size": "64MB",
}


def server_configuration(*, name: str, data: Path, socket: Path, log: Path, durability: bool) -> str:
    settings = {
        **_FOR_A_SMALL_SERVICE,
        **({} if durability else _WITHOUT_DURABILITY),
        "cluster_name": name,
        "listen_addresses": "",
        "port": "5432",
        # The value is a list, so it needs quotes of its own.
        "unix_socket_directories": '"{}"'.format(str(socket).replace('"', '""')),
        "unix_socket_permissions": "0700",
        "log_directory": str(log),
    }
    lines = [
        "# Written by Vestnik at every start. Use ALTER SYSTEM for changes of yours.",
        f"include {_quoted(str(data / 'postgresql.conf'))}",
        *(f"{key} = {_quoted(value)}" for key, value in settings.items()),
    ]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
