"""The XML parser that feedparser is given: as the usual one, but it refuses what feedparser takes hours for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.sax.expatreader import ExpatParser

from vestnik.autopost.sources.contract import SourceFailed

MOST_ATTRIBUTES: Final = 1000


def create_parser() -> _Parser:
    """What ``xml.sax.make_parser`` looks for in a module."""
    return _Parser()


class _Parser(ExpatParser):
    def start_element_ns(self, name: str, attrs: Mapping[str, str]) -> None:
        # feedparser looks for each attribute in the list of all. Here they are counted whatever the encoding is.
        if len(attrs) > MOST_ATTRIBUTES:
            message = f"an element of the answer has {len(attrs)} attributes; more than {MOST_ATTRIBUTES} are not read"
            raise SourceFailed("too_many_attributes", message, permanent=True)
        super().start_element_ns(name, attrs)
