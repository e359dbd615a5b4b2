"""The tree written in a dialect. ``Flow`` keeps the white space, ``Writer`` walks the tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from vestnik.adapters.markup.dialects import Dialect
from vestnik.adapters.markup.tree import INLINE, Node, with_address

RULE: Final = "———"
_SPACE: Final = " \t\n"


def render(tree: Node, dialect: Dialect) -> str:
    return _write(tree, dialect, frozenset())


@dataclass(slots=True)
class _Mark:
    kind: str
    address: str = ""
    closing: str | None = None  # None until the first text inside it has come


class Flow:
    """Text on its way out. White space and marks wait until there is text to put them before: so a mark never
    stands empty or touches white space from inside, and the spaces around blocks do not add up.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._out: list[str] = []
        self._last = ""
        self._gap = ""
        self._breaks = 0
        self._prefix = ""
        self._marks: list[_Mark] = []
        self._after_break = False

    def text(self, text: str) -> None:
        if self._after_break and text.startswith("\n"):
            text = text[1:]  # a <br> at the end of a line of source
        self._after_break = self._after_break and not text
        body = text.strip(_SPACE)
        if not body:
            self._gap += text
            return
        start = text.index(body)
        self._gap += text[:start]
        self._lead_in()
        self._put(self._dialect.escape(body, self._last in ("", "\n")))
        self._gap = text[start + len(body) :]

    def raw(self, text: str) -> None:
        """Finished text of the dialect."""
        self._after_break = False
        self._lead_in()
        self._put(text)

    def line_break(self) -> None:
        self._gap += "\n"
        self._after_break = True

    def block(self, newlines: int) -> None:
        """What follows starts this many newlines further on, at least."""
        self._breaks = max(self._breaks, newlines, self._gap.count("\n"))
        self._gap = ""
        self._after_break = False

    def bullet(self, prefix: str) -> None:
        self._prefix = prefix

    def open(self, kind: str, address: str = "") -> None:
        self._marks.append(_Mark(kind, address))

    def close(self) -> bool:
        """Whether anything was written inside."""
        mark = self._marks.pop()
        if mark.closing is None:
            return False
        self._put(mark.closing)
        return True

    def result(self) -> str:
        return "".join(self._out)

    def _lead_in(self) -> None:
        if self._out:
            self._put("\n" * max(self._breaks, self._gap.count("\n")) if self._breaks else self._gap)
        self._put(self._prefix)
        self._gap, self._breaks, self._prefix = "", 0, ""
        before = self._last
        for mark in self._marks:
            if mark.closing is None:
                link = mark.kind == "link"
                opening, mark.closing = (
                    self._dialect.link(mark.address) if link else self._dialect.mark(mark.kind, before)
                ) or ("", "")
                self._put(opening)

    def _put(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._last = text[-1]


def _write(node: Node, dialect: Dialect, inside: frozenset[str]) -> str:
    flow = Flow(dialect)
    Writer(flow, dialect).children(node, inside)
    return flow.result()


class Writer:
    """``inside`` names what is open around a node: nobody takes a quote in a quote."""

    def __init__(self, flow: Flow, dialect: Dialect) -> None:
        self._flow = flow
        self._dialect = dialect
        self._depth = 0

    def children(self, node: Node, inside: frozenset[str]) -> None:
        for child in node.children:
            if isinstance(child, str):
                self._flow.text(child.replace("\n", " ") if "heading" in inside else child)
            else:
                self._node(child, inside)

    def _node(self, node: Node, inside: frozenset[str]) -> None:
        match node.kind:
            case "link":
                self._link(node, inside)
            case "code":
                self._code(node, inside)
            case "pre":
                self._pre(node)
            case "quote":
                self._quote(node, inside)
            case "heading":
                self._heading(node, inside)
            case "list":
                self._list(node, inside)
            case "paragraph":
                self._block(node, inside, 2)
            case "item":
                self._block(node, inside, 1)  # outside any list
            case "break":
                self._flow.line_break()
            case "blank":
                self._flow.block(2)
            case "rule":
                self._flow.block(1)
                self._flow.raw(RULE)
                self._flow.block(1)
            case kind if kind in INLINE:
                self._marked(node, kind, inside)
            case _:
                self.children(node, inside)

    def _marked(self, node: Node, kind: str, inside: frozenset[str]) -> None:
        marks = self._dialect.mark(kind, "")
        if marks is None or marks[0] in inside:  # <b> in <strong>, or a mark that becomes bold in bold
            self.children(node, inside)
            return
        self._flow.open(kind)
        self.children(node, inside | {marks[0]})
        self._flow.close()

    def _link(self, node: Node, inside: frozenset[str]) -> None:
        address = node.value
        if not address:
            self.children(node, inside)
        elif "link" in inside or self._dialect.link(address) is None:
            self.children(node, inside)
            shown = Node("", children=node.children).plain()
            self._flow.text(with_address(shown, address).removeprefix(shown))
        else:
            self._flow.open("link", address)
            self.children(node, inside | {"link"})
            if not Node("", children=node.children).plain().strip():
                self._flow.text(address)
            self._flow.close()

    def _code(self, node: Node, inside: frozenset[str]) -> None:
        text = node.plain()
        if "link" in inside or not text.strip():  # code and link in one place: the link is worth more
            self._flow.text(text)
        else:
            self._flow.raw(self._dialect.code(text))

    def _pre(self, node: Node) -> None:
        text = node.plain().strip("\n")
        self._flow.block(1)
        if text.strip():
            self._flow.raw(self._dialect.pre(text, node.value))
        self._flow.block(1)

    def _quote(self, node: Node, inside: frozenset[str]) -> None:
        if "quote" in inside:
            self._block(node, inside, 1)
            return
        inner = _write(node, self._dialect, inside | {"quote"})
        self._flow.block(1)
        if inner:
            self._flow.raw(self._dialect.quote(inner, node.value == "expandable"))
        self._flow.block(1)

    def _heading(self, node: Node, inside: frozenset[str]) -> None:
        level = 6 if self._depth else int(node.value)  # a title in a list would tear the bullet off
        self._flow.block(2)
        title = Node(self._dialect.heading(level), children=node.children)
        self._marked(title, title.kind, inside | {"heading"})
        self._flow.block(1)

    def _list(self, node: Node, inside: frozenset[str]) -> None:
        number = int(node.value) if re.fullmatch(r"[0-9]{1,9}", node.value) else None
        self._flow.block(1)
        for child in node.children:
            if isinstance(child, Node) and child.kind == "item":
                self._flow.block(1)
                self._flow.bullet("  " * self._depth + ("• " if number is None else f"{number}. "))
                self._depth += 1
                self.children(child, inside)
                self._depth -= 1
                number = None if number is None else number + 1
            elif isinstance(child, Node):
                self._node(child, inside)
            else:
                self._flow.text(child)
        self._flow.block(1)

    def _block(self, node: Node, inside: frozenset[str], newlines: int) -> None:
        self._flow.block(newlines)
        self.children(node, inside)
        self._flow.block(newlines)
