"""Internal HTML into the tree.

Unknown and unbalanced tags are refused before a delivery exists, so this parser need not report them; it has
to live with them: a tag it does not know stays visible as text, a tag left open is closed at the end.
"""

from __future__ import annotations

import html
import re
from html.entities import html5

from vestnik.adapters.markup.tree import Node

VOID_TAGS = frozenset({"br"})

_KINDS = {
    **dict.fromkeys(("b", "strong"), "bold"),
    **dict.fromkeys(("i", "em"), "italic"),
    **dict.fromkeys(("u", "ins"), "underline"),
    **dict.fromkeys(("s", "strike", "del"), "strike"),
    **{f"h{level}": "heading" for level in range(1, 7)},
    "a": "link",
    "blockquote": "quote",
    "br": "break",
    "code": "code",
    "li": "item",
    "mark": "mark",
    "ol": "list",
    "p": "paragraph",
    "pre": "pre",
    "span": "span",
    "tg-spoiler": "spoiler",
    "ul": "list",
}
INTERNAL_TAGS = frozenset(_KINDS)

# Quoted values hold no "<", so a search never runs past the next tag: linear on any text.
_TAG = re.compile(r"""<(/?)([A-Za-z][A-Za-z0-9-]*)(?=[\s/>])((?:"[^"<]*"|'[^'<]*'|[^'"<>])*)>""")
_ATTRIBUTE = re.compile(r"""([A-Za-z][A-Za-z-]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"']+)))?""")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_DEEPEST = 64


def parse_html(text: str) -> Node:
    root = Node("root")
    stack: list[tuple[str, Node]] = [("", root)]
    at = 0
    for tag in _TAG.finditer(text):
        stack[-1][1].add(decode(text[at : tag.start()]))
        at = tag.end()
        name = tag[2].lower()
        if name not in INTERNAL_TAGS:
            stack[-1][1].add(decode(tag[0]))
        elif tag[1]:
            _close(stack, name)
        else:
            _open(stack, name, tag[3])
    stack[-1][1].add(decode(text[at:]))
    return root


def decode(text: str) -> str:
    """Entities that end in a semicolon; a bare ampersand, as in an address, is itself."""
    return _ENTITY.sub(lambda entity: html5.get(entity[0][1:]) or _number(entity[0]), text)


def _number(entity: str) -> str:
    return html.unescape(entity) if entity[1] == "#" else entity


def _open(stack: list[tuple[str, Node]], name: str, rest: str) -> None:
    attributes = {
        found[1].lower(): decode(found[2] or found[3] or found[4] or "") for found in _ATTRIBUTE.finditer(rest)
    }
    node = _node(name, attributes)
    parent = stack[-1][1]
    if node.kind == "code" and parent.kind == "pre" and node.value:
        parent.value = node.value
    if name in VOID_TAGS or rest.endswith("/"):
        parent.add(node)
    elif len(stack) < _DEEPEST:
        parent.add(node)
        stack.append((name, node))


def _close(stack: list[tuple[str, Node]], name: str) -> None:
    for at in range(len(stack) - 1, 0, -1):
        if stack[at][0] == name:
            del stack[at:]
            return


def _node(name: str, attributes: dict[str, str]) -> Node:
    kind = _KINDS[name]
    if kind == "link":
        return Node(kind, attributes.get("href", "").strip())
    if kind == "heading":
        return Node(kind, name[1])
    if kind == "list":
        return Node(kind, attributes.get("start", "1") if name == "ol" else "")
    if kind == "quote":
        return Node(kind, "expandable" if "expandable" in attributes else "")
    if kind in ("code", "pre"):
        return Node(kind, _language(attributes.get("class", "")))
    if kind == "span":
        return Node("spoiler" if attributes.get("class") == "tg-spoiler" else kind)
    return Node(kind)


def _language(classes: str) -> str:
    found = re.search(r"language-([A-Za-z0-9+#._-]{1,32})", classes)
    return found[1] if found else ""
