"""What the configurations of all sources share: strict models, addresses, and secrets by reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from yarl import URL

from vestnik.autopost.faults import told
from vestnik.autopost.sources.contract import Secrets, SourceFailed, fingerprint
from vestnik.errors import ConfigError, NotFound

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_HEADERS = {"authorization", "proxy-authorization", "cookie", "x-api-key"}


class SourceConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def identity(self) -> str:
        """Changes with anything that is declared."""
        return fingerprint(self.model_dump_json())


def _address(text: str) -> str:
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host or re.search(r"\s", text):
        raise ValueError("must be an http or https address")
    if url.user is not None or url.password is not None:
        raise ValueError("has a user or a password in it; store the secret as a credential and name it under auth")
    return text


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a header")
    return name


def _open_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        _header_name(name)
        if name.lower() in _SECRET_HEADERS:
            raise ValueError(f"{name} is a secret; store it as a credential and name it under auth")
        if not value.isprintable():
            raise ValueError(f"{name} has a character that no header takes")
    return headers


Config = TypeVar("Config", bound="SourceConfig")
Address = Annotated[str, AfterValidator(_address)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
Headers = Annotated[dict[str, str], AfterValidator(_open_headers)]


class Auth(SourceConfig):
    """A header whose value is ``prefix`` and a stored secret."""

    header: HeaderName = "Authorization"
    secret_ref: str = Field(min_length=1)
    prefix: str = ""

    async def as_header(self, secrets: Secrets) -> dict[str, str]:
        value = self.prefix + (await secret(secrets, self.secret_ref)).strip()
        if not value.isprintable():
            message = f"the credential {self.secret_ref!r} has a character that no header takes"
            raise SourceFailed("bad_secret", message, permanent=True)
        return {self.header: value}


async def secret(secrets: Secrets, name: str) -> str:
    try:
        return await secrets(name)
    except NotFound:
        message = f"there is no credential {name!r} in this workspace"
    raise SourceFailed("no_secret", message, permanent=True)


def read_config(model: type[Config], config: Mapping[str, Any]) -> Config:
    """The configuration as its model; ConfigError names every fault by its place."""
    try:
        return model.model_validate(config)
    except ValidationError as e:
        # Not chained: the fault of a DSN would carry the DSN.
        message = told(model, config, e, "config")
    raise ConfigError(message)
