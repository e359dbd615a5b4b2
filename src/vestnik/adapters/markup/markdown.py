"""Internal Markdown into the tree: CommonMark with strikethrough, read by mistune. Raw HTML is text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import unquote

import mistune

from vestnik.adapters.markup.html import decode
from vestnik.adapters.markup.tree import Node

_NAMES = {
    "strong": "bold",
    "emphasis": "italic",
    "strikethrough": "strike",
    "paragraph": "paragraph",
    "block_quote": "quote",
    "list_item": "item",
    "linebreak": "break",
    "thematic_break": "rule",
}
_parse = mistune.create_markdown(renderer=None, plugins=["strikethrough"])


def parse_markdown(text: str) -> Node:
    # Somebody else's parser meets anybody's text: whatever it trips over, the text survives.
    try:
        blocks = cast(list[dict[str, Any]], _parse(text))
    except Exception:
        return Node("root", children=[text])
    root = Node("root")
    for block in blocks:
        _add(root, [block])
        root.add(Node("blank"))
    return root


def _add(parent: Node, tokens: Iterable[dict[str, Any]]) -> None:
    for token in tokens:
        kind, raw = token["type"], token.get("raw", "")
        if kind == "text":
            parent.add(decode(raw))
        elif kind == "softbreak":
            parent.add("\n")
        elif kind == "inline_html":
            parent.add(raw)
        elif kind == "block_html":
            parent.add(Node("paragraph", children=[raw.strip("\n")]))
        elif kind == "block_text":
            _add(parent, token.get("children", ()))
        elif kind != "blank_line":
            parent.add(_node(token, kind, raw))


def _node(token: dict[str, Any], kind: str, raw: str) -> Node:
    attributes = token.get("attrs") or {}
    if kind in ("link", "image"):
        node = Node("link", _address(attributes.get("url", "")))
    elif kind == "heading":
        node = Node("heading", str(attributes.get("level", 1)))
    elif kind == "list":
        node = Node("list", str(attributes.get("start", 1)) if attributes.get("ordered") else "")
    elif kind == "codespan":
        node = Node("code", children=[raw])
    elif kind == "block_code":
        info = re.match(r"[A-Za-z0-9+#._-]{1,32}", attributes.get("info") or "")
        node = Node("pre", info[0] if info else "", [raw])
    else:
        node = Node(_NAMES.get(kind, "paragraph"), children=[raw] if raw else [])
    _add(node, token.get("children", ()))
    return node


def _address(url: str) -> str:
    """mistune percent-encodes what is not ASCII, which a path survives and the host of an IDN does not."""
    return re.sub(r"(?<=://)[^/?#]+", lambda host: unquote(host[0]), url, count=1)
