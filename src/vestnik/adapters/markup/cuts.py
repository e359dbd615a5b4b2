"""Where a tree can be cut, and the two sides of a cut.

A place is a number: how many characters of the text stand before it. Breaks, blank lines and rules count as one
character each, marks as none.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from vestnik.adapters.markup.dialects import Dialect
from vestnik.adapters.markup.tree import Node, with_address

PARAGRAPH, LINE, SENTENCE, WORD = range(4)

_LEAVES: Final = {"break": "\n", "blank": "\n", "rule": "—"}
_BLOCKS: Final = frozenset(("paragraph", "heading", "quote", "pre", "list", "item"))
_DEEP: Final = frozenset(("quote", "pre", "list"))
_BLANKS: Final = re.compile(r"[^\S\u00a0\u2007\u202f]+")  # where a line may be broken
_SENTENCE_END: Final = re.compile(r"[.!?…][\"'»”’)\]]*$")


def settle(node: Node, dialect: Dialect, inside_link: bool = False) -> None:
    """What one side of a cut could not know is written out: the address of a link that this dialect does not carry."""
    settled: list[Node | str] = []
    for child in node.children:
        if isinstance(child, str):
            settled.append(child)
            continue
        if child.kind in ("code", "pre"):
            child.children = [text] if (text := child.plain()) else []
        elif child.kind == "link":
            _settle_link(child, dialect, inside_link)
        settle(child, dialect, inside_link or child.kind == "link")
        settled.append(child)
    node.children = settled


def _settle_link(link: Node, dialect: Dialect, inside_link: bool) -> None:
    shown = Node("", children=link.children).plain()
    if not link.value or inside_link or dialect.link(link.value) is None:
        link.add(with_address(shown, link.value).removeprefix(shown) if link.value else "")
        link.kind = "span"
    elif not shown.strip():
        link.children = [link.value]


def shows(node: Node | str) -> bool:
    if isinstance(node, str):
        return bool(node.strip())
    return node.kind == "rule" or any(map(shows, node.children))


def before(node: Node, place: int) -> Node:
    return _before(node, place)[0]


def after(node: Node, place: int) -> Node:
    """The marks that are open at the place are opened again; a list goes on with its next number, and what is left of
    an item has no bullet of its own."""
    rest = Node(node.kind, node.value)
    begun = 0
    for child in node.children:
        size = _size(child)
        item = isinstance(child, Node) and child.kind == "item"
        if 0 < place >= size:
            place -= size
            begun += item
        elif place == 0:
            rest.add(child)
        elif isinstance(child, str):
            rest.add(child[place:])
            place = 0
        else:
            tail = after(child, place)
            if item and shows(before(child, place)):
                tail.kind, begun = "rest", begun + 1
            rest.add(tail)
            place = 0
    if rest.kind == "list" and begun and re.fullmatch(r"[0-9]{1,9}", rest.value):
        rest.value = str(int(rest.value) + begun)
    return _still_a_link(rest)


def _before(node: Node, place: int) -> tuple[Node, int]:
    head = Node(node.kind, node.value)
    for child in node.children:
        if place <= 0:
            break
        if isinstance(child, str):
            head.add(child[:place])
            place -= len(child)
        elif child.kind in _LEAVES:
            head.add(child)
            place -= 1
        else:
            part, place = _before(child, place)
            head.add(part)
    return _still_a_link(head), place


def _still_a_link(node: Node) -> Node:
    """A link without a text would show its address, and it is the other side that has the text."""
    if node.kind == "link" and not shows(node):
        node.kind = "span"
    return node


def _size(node: Node | str) -> int:
    if isinstance(node, str):
        return len(node)
    return 1 if node.kind in _LEAVES else sum(map(_size, node.children))


class Places:
    """The places of a tree by what ends there, the best one first."""

    def __init__(self, tree: Node) -> None:
        self._parts: list[str] = []
        self._at = 0
        self._deep: list[tuple[int, int]] = []
        self._titles: list[tuple[int, int]] = []
        self._edges: list[tuple[int, int]] = []
        self._walk(tree, deep=False)
        self.text = "".join(self._parts)
        ranks = self._ranks()
        self._ranked = [sorted(place for place, rank in ranks.items() if rank == wanted) for wanted in range(4)]

    def best(self, low: int, high: int, least: float) -> int:
        """Where to cut between the two: at the end of a paragraph, else of a line, a sentence, a word, as long as that
        leaves at least this share of what would fit; inside a word only where it is longer than all that."""
        for lowest in (low + int((high - low) * least), low):
            for places in self._ranked:
                at = bisect_right(places, high)
                if at and places[at - 1] > lowest:
                    return places[at - 1]
        for place in range(high, low, -1):
            if not _joined(self.text, place):
                return place
        return high

    def _walk(self, node: Node, deep: bool) -> None:
        for child in node.children:
            if isinstance(child, str):
                self._say(child)
            elif child.kind in _LEAVES:
                self._say(_LEAVES[child.kind])
            else:
                self._enter(child, deep)

    def _enter(self, node: Node, deep: bool) -> None:
        start, rank = self._at, LINE if deep or node.kind == "item" else PARAGRAPH
        if node.kind in _BLOCKS:
            self._edges.append((start, rank))
        self._walk(node, deep or node.kind in _DEEP)
        if node.kind == "heading":
            self._titles.append((start, self._at))
        elif node.kind in _BLOCKS:
            self._edges.append((self._at, rank))
        if node.kind in _DEEP and not deep:
            self._deep.append((start, self._at))

    def _say(self, text: str) -> None:
        self._parts.append(text)
        self._at += len(text)

    def _ranks(self) -> dict[int, int]:
        inside = bytearray(len(self.text) + 1)
        for start, end in self._deep:
            inside[start:end] = b"\1" * (end - start)
        ranks: dict[int, int] = {}
        for blank in _BLANKS.finditer(self.text):
            # Behind the newline: what stands between that and the next word is the indentation of code.
            place = blank.start() + (blank[0].rfind("\n") + 1 or len(blank[0]))
            ranks[place] = self._rank(blank, bool(inside[blank.start()]))
        for place, rank in self._edges:
            ranks[place] = min(rank, ranks.get(place, rank))
        # A title does not stay behind alone.
        for start, end in self._titles:
            follows = re.compile(r"\S").search(self.text, end)
            for place in range(start + 1, (follows.start() if follows else end) + 1):
                if place in ranks:
                    ranks[place] = WORD
        return ranks

    def _rank(self, blank: re.Match[str], deep: bool) -> int:
        if newlines := blank[0].count("\n"):
            return PARAGRAPH if newlines > 1 and not deep else LINE
        return SENTENCE if _SENTENCE_END.search(self.text, max(0, blank.start() - 4), blank.start()) else WORD


def _joined(text: Sequence[str], place: int) -> bool:
    """Whether a reader sees the characters on both sides as one."""
    if not 0 < place < len(text):
        return False
    left, right = text[place - 1], text[place]
    if "\u200d" in (left, right) or unicodedata.category(right) in ("Mn", "Mc", "Me"):
        return True
    if "\U0001f3fb" <= right <= "\U0001f3ff" or "\U000e0020" <= right <= "\U000e007f":
        return True
    if not (_of_a_flag(left) and _of_a_flag(right)):
        return False
    first = place - 1
    while first > 0 and _of_a_flag(text[first - 1]):
        first -= 1
    return (place - first) % 2 == 1


def _of_a_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"
