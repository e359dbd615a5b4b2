"""A payload at rest is bound to its key, its workspace and its name; a link to what was signed."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from vestnik.autopost.payloads.equipment import open_vault
from vestnik.autopost.payloads.links import Link, LinkForged, Links
from vestnik.autopost.payloads.sealing import MAGIC, PayloadUnreadable, Seal
from vestnik.autopost.payloads.vault import is_ref, made_at, new_ref
from vestnik.errors import NotFound
from vestnik.ops.secrets.box import SecretBox
from vestnik.settings import Settings
from vestnik.storage import open_store

OURS, THEIRS = SecretBox.open_with("our key"), SecretBox.open_with("another key")
LINK = Link("w", "019a2b3c-4d5e-7f60-8123-456789abcdef", "operator anna", uuid4(), 1_900_000_000)


def test_what_was_sealed_is_opened_and_says_nothing_meanwhile() -> None:
    seal = Seal([OURS])
    sealed = seal.close("w", "name", b"call the customer " * 50)
    assert seal.open("w", "name", sealed) == b"call the customer " * 50
    assert b"customer" not in sealed
    assert seal.close("w", "name", b"same") != seal.close("w", "name", b"same")


@pytest.mark.parametrize(("workspace", "name"), [("other", "name"), ("w", "another")])
def test_it_is_of_no_use_in_another_place(workspace: str, name: str) -> None:
    sealed = Seal([OURS]).close("w", "name", b"content")
    with pytest.raises(PayloadUnreadable, match="another one's"):
        Seal([OURS]).open(workspace, name, sealed)


def test_not_one_bit_of_it_can_be_changed() -> None:
    sealed = Seal([OURS]).close("w", "name", b"content")
    for at in range(len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(PayloadUnreadable):
            Seal([OURS]).open("w", "name", changed)
    for left in (b"", MAGIC, sealed[:20], sealed[:-1]):
        with pytest.raises(PayloadUnreadable):
            Seal([OURS]).open("w", "name", left)


def test_the_key_can_be_changed_and_what_the_old_one_sealed_can_still_be_read() -> None:
    before = Seal([THEIRS]).close("w", "name", b"of yesterday")
    both = Seal([OURS, THEIRS])
    assert both.open("w", "name", before) == b"of yesterday"
    after = both.close("w", "name", b"of today")
    assert Seal([OURS]).open("w", "name", after) == b"of today"
    with pytest.raises(PayloadUnreadable, match="another secret key") as refusal:
        Seal([OURS]).open("w", "name", before)
    assert "VESTNIK_EARLIER_SECRET_KEYS" in str(refusal.value.hint)


async def test_an_installation_changes_its_key_by_its_settings(tmp_path: Path) -> None:
    """From the key of the data folder to a named one, and on to another."""
    store = open_store((tmp_path / "objects").as_uri())
    names = []
    steps = ({}, {"secret_key": "first"}, {"secret_key": "second", "earlier_secret_keys": ["first"]})
    for given in steps:
        vault = open_vault(Settings(_env_file=None, data_dir=tmp_path / "data", **given), store)  # type: ignore[arg-type]
        names.append(await vault.put("w", {"n": len(names)}))
        assert [(await vault.get("w", name))[-5:] for name in names] == [
            f": {n}\n}}".encode() for n in range(len(names))
        ]
    forgetful = open_vault(Settings(_env_file=None, data_dir=tmp_path / "data", secret_key="second"), store)  # type: ignore[arg-type]
    with pytest.raises(PayloadUnreadable):
        await forgetful.get("w", names[1])


async def test_nothing_else_in_the_store_can_be_asked_for(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    vault = open_vault(Settings(_env_file=None, data_dir=tmp_path / "data"), store)  # type: ignore[call-arg]
    for name in ("../media/x", "", "x" * 36, new_ref().upper(), new_ref() + "/..", new_ref()):
        with pytest.raises(NotFound):
            await vault.get("w", name)


def test_a_name_carries_its_moment() -> None:
    for moment in (0.0, 1_800_000_000.125, 4_000_000_000.0):
        name = new_ref(moment)
        assert is_ref(name) and name[14] == "7" and name[19] in "89ab"
        assert made_at(name).timestamp() == moment
    assert len({new_ref(0.0) for _ in range(100)}) == 100


def test_a_link_says_what_was_signed() -> None:
    token = Links(OURS).write(LINK)
    assert Links(SecretBox.open_with("our key")).read(token) == LINK, "any process with the same key knows it"
    assert token.startswith("vlink_")


def test_a_link_can_be_neither_made_up_nor_changed() -> None:
    token = Links(OURS).write(LINK)
    forged = [Links(THEIRS).write(LINK), "", "vlink_", token.removeprefix("vlink_"), token + "A", token[:-3], "vlink_é"]
    for at in range(len("vlink_"), len(token), 3):
        other = "A" if token[at] != "A" else "B"
        forged.append(token[:at] + other + token[at + 1 :])
    for each in forged:
        with pytest.raises(LinkForged):
            Links(OURS).read(each)
