"""Settings: the one place where the environment and ``.env`` are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, DotEnvSettingsSource, SettingsConfigDict

from vestnik.errors import ConfigError


class Settings(BaseSettings):
    """Every setting of Vestnik. Names in the environment carry the prefix ``VESTNIK_``."""

    model_config = SettingsConfigDict(
        env_prefix="VESTNIK_", env_file=".env", env_file_encoding="utf-8", extra="ignore", frozen=True
    )

    database_url: str | None = Field(
        None, description="PostgreSQL 16 or newer. Empty: the embedded server in the data folder."
    )
    data_dir: Path = Field(Path(".data"), description="Where the embedded database, keys and files live.")
    secret_key: SecretStr | None = Field(
        None, description="Key that encrypts stored credentials. Empty: made once, kept in the data folder."
    )
    earlier_secret_keys: list[SecretStr] = Field(
        [],
        description="Keys that were `secret_key` before, as a JSON list: payloads that they sealed can still be read.",
    )
    http_host: str = Field("127.0.0.1", description="Address that the API listens on.")
    http_port: int = Field(8080, ge=0, le=65535, description="Port that the API listens on.")
    log_format: Literal["text", "json"] = Field("text", description="How log lines look.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level logged.")

    telegram_api_url: str = Field("https://api.telegram.org", description="Base URL of the Telegram Bot API.")
    max_api_url: str = Field("https://platform-api2.max.ru", description="Base URL of the MAX Bot API.")
    max_ca_file: Path | None = Field(
        None, description="PEM file with the root that MAX's certificate chains to, if the system lacks it."
    )
    http_timeout: float = Field(30.0, gt=0, description="Seconds before a call to a platform is given up.")

    send_concurrency: int = Field(1000, ge=1, description="Most sends under way at once in one dispatcher.")
    job_concurrency: int = Field(1000, ge=1, description="Most jobs under way at once in one runner.")
    dispatch_poll: float = Field(0.5, gt=0, description="Seconds between looks at a queue without a wake-up.")
    max_request_bytes: int = Field(
        8 * 1024 * 1024, ge=1024, description="Hard cap on a request's body, above every endpoint's own."
    )

    api_rps: float = Field(
        50.0,
        gt=0,
        le=100_000,
        description="Requests a second that one API key or operator may make of the management API, in each API process;"
        " twice as many in a burst.",
    )

    object_store_url: str | None = Field(
        None,
        repr=False,  # it may hold a key
        description="Where media are kept: `file:///folder` or `s3://KEY:SECRET@bucket/prefix?endpoint=…&region=…`."
        " Empty: the folder `objects` in the data folder.",
    )
    media_max_bytes: int = Field(512 * 1024 * 1024, ge=1, description="Largest single file that a post may bring.")
    fetch_allow: str = Field(
        "", description="Networks that may be fetched from although they are not public: `10.1.0.0/16, 127.0.0.1/32`."
    )

    smtp_url: SecretStr | None = Field(
        None,
        description="Mail server for alerts: `smtp://USER:PASSWORD@host:587?from=ADDRESS` (STARTTLS), or `smtps://…:465`.",
    )

    metrics_token: SecretStr | None = Field(
        None, description="Who reads `/metrics` sends it as a bearer token. Empty: only this machine may read."
    )
    metrics_host: str = Field("127.0.0.1", description="Address that metrics are served on, where they have a port.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port for `/metrics` alone; needed where the role api does not run. Empty: on the API's port.",
    )
    metrics_workspaces: int = Field(
        200, ge=0, le=10_000, description="Most workspaces that metrics name; all others are one, `other`."
    )
    otlp_url: str | None = Field(
        None,
        repr=False,
        description="Where traces go, by OTLP over HTTP: `http://collector:4318`. Empty: as `OTEL_EXPORTER_OTLP_ENDPOINT`"
        " says, else nowhere.",
    )
    trace_share: float = Field(1.0, ge=0, le=1, description="How much of the posts is traced, 0.1 for a tenth.")

    @property
    def traces_url(self) -> str | None:
        """OpenTelemetry's own variables are heard, too."""
        given = environment()
        if given.get("OTEL_SDK_DISABLED", "").lower() == "true" or given.get("OTEL_TRACES_EXPORTER", "") == "none":
            return None
        standard = (given.get(f"OTEL_EXPORTER_OTLP_{name}") for name in ("TRACES_ENDPOINT", "ENDPOINT"))
        return self.otlp_url or next((url for url in standard if url), None)

    @property
    def object_store(self) -> str:
        return self.object_store_url or (self.data_dir.resolve() / "objects").as_uri()

    def base_urls(self, platforms: Iterable[str]) -> dict[str, str]:
        """Of those that have one: the built-in ones by default, any other by ``VESTNIK_<PLATFORM>_API_URL``."""
        return self._by_platform(platforms, "api_url")

    def ca_files(self, platforms: Iterable[str]) -> dict[str, Path]:
        """Of those that have one, by ``VESTNIK_<PLATFORM>_CA_FILE``."""
        return {platform: Path(file) for platform, file in self._by_platform(platforms, "ca_file").items()}

    def _by_platform(self, platforms: Iterable[str], what: str) -> dict[str, str]:
        given = environment()
        found = {}
        for platform in platforms:
            name = f"{platform.replace('-', '_')}_{what}"
            value = getattr(self, name.lower(), None) or given.get(f"VESTNIK_{name.upper()}")
            if value:
                found[platform] = str(value)
        return found

    @field_validator("otlp_url")
    @classmethod
    def _is_http(cls, url: str | None) -> str | None:
        if url and not re.match(r"https?://[^/\s]+", url):
            raise ValueError("not an http(s) address")
        return url or None

    @field_validator("database_url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        try:
            conninfo_to_dict(url or "")
        except ProgrammingError as e:
            raise ValueError(f"not the address of a database: {e}".strip()) from None
        return url


def environment() -> dict[str, str]:
    """The variables of ``.env``, and above them those of the process."""
    of_file = DotEnvSettingsSource(Settings, case_sensitive=True).env_vars
    return {name: value for name, value in of_file.items() if value is not None} | dict(os.environ)


def load_settings() -> Settings:
    try:
        return Settings()
    except ValidationError as e:
        faults = "; ".join(f"VESTNIK_{str(f['loc'][0]).upper()}: {f['msg']}" for f in e.errors())
        raise ConfigError(f"settings are wrong: {faults}", hint="correct them in the environment or .env") from e
