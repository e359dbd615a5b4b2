"""Which platforms there are: whatever is registered in the entry-point group ``vestnik.adapters``.

Telegram and MAX come in by this door too (see ``pyproject.toml``). A platform from outside is a package with
one entry point more; its name there is the name that ``channels.platform`` holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from vestnik.adapters.contract import Adapter, AdapterContext, Depot, ResolveSecret
from vestnik.errors import ConfigError
from vestnik.settings import Settings

GROUP = "vestnik.adapters"


def available() -> dict[str, EntryPoint]:
    """Every platform by name."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        known = found.setdefault(entry.name, entry)
        if known.value != entry.value:
            raise ConfigError(
                f"two packages offer an adapter for platform {entry.name!r}: {known.value} and {entry.value}",
                hint="uninstall one of them",
            )
    return dict(sorted(found.items()))


def load_configured(settings: Settings, secret: ResolveSecret, depot: Depot | None = None) -> dict[str, Adapter]:
    """All that are installed, as the settings say."""
    platforms = available()
    context = AdapterContext(
        secret=secret,
        base_urls=settings.base_urls(platforms),
        ca_files=settings.ca_files(platforms),
        timeout=settings.http_timeout,
        connections=settings.send_concurrency,
        depot=depot,
    )
    return load(context, platforms)


def load(context: AdapterContext, platforms: Iterable[str] | None = None) -> dict[str, Adapter]:
    """The adapters of these platforms, or of all that are installed."""
    offered = available()
    wanted = list(offered) if platforms is None else sorted(set(platforms))
    for platform in wanted:
        if platform not in offered:
            raise ConfigError(
                f"there is no adapter for platform {platform!r}",
                hint=f"installed: {', '.join(offered) or 'none'}; "
                f"a package adds one by an entry point in the group {GROUP}",
            )
    return {platform: _create(offered[platform], context) for platform in wanted}


def _create(entry: EntryPoint, context: AdapterContext) -> Adapter:
    try:
        create = entry.load()
    except (ImportError, AttributeError) as e:
        raise ConfigError(
            f"the adapter for platform {entry.name!r} cannot be loaded from {entry.value}: {e}",
            hint="reinstall the package that offers it",
        ) from e
    adapter: Adapter = create(context)
    if adapter.platform != entry.name:
        raise ConfigError(
            f"{entry.value} calls itself {adapter.platform!r}, but is registered as {entry.name!r}",
            hint="the two names must be the same",
        )
    return adapter
