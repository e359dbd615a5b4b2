"""The form between: a small tree that says what a text is, not how anybody writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

INLINE = ("bold", "italic", "underline", "strike", "spoiler", "mark")


@dataclass(slots=True)
class Node:
    """``kind`` is one of INLINE, or root, span, link, code, pre, quote, heading, paragraph, list, item, rest (of an item
    that was cut), break, blank (a blank line), rule.

    ``value`` is the link's address, the code's language, the heading's level, the list's first number.
    """

    kind: str
    value: str = ""
    children: list[Node | str] = field(default_factory=list)

    def add(self, child: Node | str) -> None:
        """Neighbouring pieces of text become one: escaping looks at the neighbours of a character."""
        if isinstance(child, str) and self.children and isinstance(self.children[-1], str):
            self.children[-1] += child
        elif child != "":
            self.children.append(child)

    def links(self) -> Iterator[Node]:
        for child in self.children:
            if isinstance(child, Node):
                if child.kind == "link":
                    yield child
                yield from child.links()

    def plain(self) -> str:
        """The visible text, with each link's address where the text does not show it already."""
        parts = [child if isinstance(child, str) else child.plain() for child in self.children]
        text = "\n" if self.kind == "break" else "".join(parts)
        return with_address(text, self.value) if self.kind == "link" else text


def with_address(text: str, address: str) -> str:
    shown = address.removeprefix("mailto:")
    if not text.strip():
        return shown
    return text if text.strip() in (address, shown) else f"{text} ({shown})"
