"""Platforms come in by entry points, the built-in ones by the same door."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from vestnik.adapters.contract import AdapterContext
from vestnik.adapters.registry import GROUP, load, load_configured
from vestnik.errors import ConfigError
from vestnik.settings import load_settings

CODE = """
class Echo:
    platform = {name!r}
    media = False
    def __init__(self, context):
        self.context = context
create = Echo
"""


async def _no_secret(*where: str) -> str:
    raise AssertionError("not asked for")


CONTEXT = AdapterContext(_no_secret, {"telegram": "https://t.example", "max": "https://m.example"})


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A package from outside, as pip would leave it."""

    def package(name: str, entry: str, code: str = "") -> None:
        (tmp_path / f"{name}.py").write_text(code)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entry}\n")

    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.startswith("outside_")]:
        del sys.modules[name]


def test_an_outside_adapter_is_loaded(install) -> None:  # type: ignore[no-untyped-def]
    install("outside_a", "echo = outside_a:create", CODE.format(name="echo"))
    adapter = load(CONTEXT, ["echo"])["echo"]
    assert adapter.platform == "echo"
    assert adapter.context is CONTEXT  # type: ignore[attr-defined]


def test_an_outside_adapter_is_configured_like_the_built_in_ones(
    install,  # type: ignore[no-untyped-def]
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("outside_f", "my-echo = outside_f:create", CODE.format(name="my-echo"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("VESTNIK_MY_ECHO_API_URL=https://of.file\nVESTNIK_MY_ECHO_CA_FILE=root.pem\n")
    context = load_configured(load_settings(), _no_secret)["my-echo"].context  # type: ignore[attr-defined]
    assert context.base_urls["my-echo"] == "https://of.file"
    assert context.base_urls["max"] == "https://platform-api2.max.ru"
    assert context.ca_files == {"my-echo": Path("root.pem")}

    monkeypatch.setenv("VESTNIK_MY_ECHO_API_URL", "https://of.process")
    context = load_configured(load_settings(), _no_secret)["my-echo"].context  # type: ignore[attr-defined]
    assert context.base_urls["my-echo"] == "https://of.process"


def test_the_built_in_ones_use_the_same_door() -> None:
    declared = tomllib.loads(Path("pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    assert set(declared) == {"telegram", "max"}
    for name, value in declared.items():
        assert EntryPoint(name, value, GROUP).load()(CONTEXT).platform == name


def test_an_unknown_platform_is_named(install) -> None:  # type: ignore[no-untyped-def]
    install("outside_b", "echo = outside_b:create", CODE.format(name="echo"))
    with pytest.raises(ConfigError, match="'pigeon'") as caught:
        load(CONTEXT, ["echo", "pigeon"])
    assert "echo" in str(caught.value.hint)
    assert GROUP in str(caught.value.hint)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("echo = outside_c:nothing", "cannot be loaded"),
        ("echo = outside_missing:create", "cannot be loaded"),
        ("echo = outside_c:create", "calls itself 'parrot'"),
    ],
)
def test_a_package_that_does_not_keep_its_word(install, entry: str, said: str) -> None:  # type: ignore[no-untyped-def]
    install("outside_c", entry, CODE.format(name="parrot"))
    with pytest.raises(ConfigError, match=said):
        load(CONTEXT, ["echo"])


def test_two_packages_for_one_platform(install) -> None:  # type: ignore[no-untyped-def]
    install("outside_d", "echo = outside_d:create", CODE.format(name="echo"))
    install("outside_e", "echo = outside_e:create", CODE.format(name="echo"))
    with pytest.raises(ConfigError, match="two packages"):
        load(CONTEXT)
