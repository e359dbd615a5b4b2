"""What cannot be declared of alerts says why, and keeps its secrets."""

from __future__ import annotations

from typing import Any

import pytest

from vestnik.autopost.declaration import read_declaration
from vestnik.errors import ConfigError

CHAT = {"id": "chat", "kind": "telegram", "address": "-100", "auth_ref": "bot"}
HOOK = {"id": "crm", "url": "https://crm.example/hooks"}


def read(alerts: Any = None, webhooks: Any = (), service: Any = None) -> None:
    workspace = {"id": "shop", "webhooks": list(webhooks)} | ({"alerts": alerts} if alerts else {})
    read_declaration({"workspaces": [workspace]} | ({"alerts": service} if service else {}))


@pytest.mark.parametrize(
    ("target", "word"),
    [
        (CHAT | {"auth_ref": None}, "auth_ref"),
        (CHAT | {"address": "the chat"}, "number of a chat"),
        (CHAT | {"kind": "max", "address": "@name"}, "number of a chat"),
        (CHAT | {"kind": "fax"}, "kind"),
        (CHAT | {"language": "fr"}, "language"),
        (CHAT | {"alerts": ["Dead!"]}, "alerts"),
        (CHAT | {"credential_workspace": "other"}, "credential_workspace"),
        ({"id": "m", "kind": "email", "address": "ops"}, "mail address"),
        ({"id": "m", "kind": "email", "address": "a@e.org\nBcc: b@e.org"}, "mail address"),
        ({"id": "h", "kind": "webhook", "address": "ftp://e.example"}, "http"),
    ],
)
def test_a_target_that_leads_nowhere_is_refused(target: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        read({"targets": [target]})


def test_a_target_of_the_service_names_whose_credential_it_uses() -> None:
    with pytest.raises(ConfigError, match="credential_workspace"):
        read(service={"targets": [CHAT]})
    read(service={"targets": [CHAT | {"credential_workspace": "shop"}]})


@pytest.mark.parametrize(
    "policy", [{"repeat_every": "1s"}, {"disk_free_percent": 101}, {"missed_intervals": 0}, {"clear_after": "2d"}]
)
def test_a_policy_out_of_its_bounds_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(policy))):
        read({"policy": policy})


@pytest.mark.parametrize("secret", ["tooshort", "whsec_tooshort", "whsec_not base64 at all, and long enough to be one"])
def test_a_secret_that_is_none_is_refused_without_it(secret: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(webhooks=[HOOK | {"secret": secret}])
    assert secret not in f"{refused.value} {refused.value.hint}"


def test_a_webhook_asks_for_events_that_there_are() -> None:
    with pytest.raises(ConfigError, match="events"):
        read(webhooks=[HOOK | {"events": ["delivery.sent"]}])
