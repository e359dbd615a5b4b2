"""``vestnik push --file``: what lies on this machine goes along."""

from __future__ import annotations

import io

import psycopg
from cli_rig import Cli
from PIL import Image

SHOP = """
workspaces:
  - id: shop
    channels: [{id: news, platform: telegram, target: "@news", auth_ref: bot}]
"""


def stored(cli: Cli) -> list[tuple[str, str]]:
    with psycopg.connect(cli.database) as connection:
        return connection.execute(
            "select i ->> 'type', o.file_name from autopost.messages m, jsonb_array_elements(m.payload -> 'media') with ordinality x (i, n)"
            " join autopost.media_origin o on o.blob_ref = i ->> 'blob_ref' order by n"
        ).fetchall()


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (30, 20)).save(out, "PNG")
    return out.getvalue()


def test_a_picture_and_a_file_go_along_in_order(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yml", SHOP))
    (cli.folder / "cat.png").write_bytes(picture())
    (cli.folder / "prices.pdf").write_bytes(b"%PDF-1.7")
    said = cli.ok("push", "shop", "Look", "--file", "cat.png", "--file", "prices.pdf")
    assert "1 queued" in said
    assert stored(cli) == [("image", "cat.png"), ("file", "prices.pdf")]


def test_what_is_wrong_with_a_file_is_said(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yml", SHOP))
    assert "nothing.png: No such file or directory" in cli.refused("push", "shop", "--file", "nothing.png")
    (cli.folder / "cat.png").write_bytes(b"%PDF-1.7")
    assert "cat.png: it should be an image, and is application/pdf" in cli.refused("push", "shop", "--file", "cat.png")
    (cli.folder / "cat.png").write_bytes(picture())
    said = cli.refused("push", "shop", "--file", "cat.png", VESTNIK_MEDIA_MAX_BYTES="10")
    assert "larger than the 10 bytes allowed" in said
    assert "no workspace nowhere" in cli.refused("push", "nowhere", "--file", "cat.png")
    assert stored(cli) == []
