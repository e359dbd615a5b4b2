"""The text of the SQL functions, for tests that judge how they are written: which functions a file brings, and the words
of a body without its comments and its strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from vestnik.db.schema_files import read_functions

_FUNCTION = re.compile(
    r"create or replace function (?P<schema>\w+)\.(?P<name>\w+)\s*\((?P<arguments>.*?)\)\s*(?:returns|language)\b.*?"
    r"as \$\$(?P<body>.*?)\$\$",
    re.DOTALL,
)
_WORD = re.compile(r"--[^\n]*|[Ee]?'(?:[^']|'')*'|\$\d+|[A-Za-z_]\w*|\d[\d.]*|::|:=|=>|->>|->|\|\||<>|<=|>=|\S")


@dataclass(frozen=True)
class Function:
    file: str
    schema: str
    name: str
    arguments: tuple[str, ...]
    body: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Lower case; strings are all ``''``."""
        return tuple(words(self.body))

    @cached_property
    def own_names(self) -> set[str]:
        """What it names itself: the steps of its queries."""
        found = zip(self.words, self.words[1:], self.words[2:], strict=False)
        return {name for name, word, after in found if word == "as" and after in ("(", "materialized")}


def functions() -> list[Function]:
    return [
        Function(file.name, m["schema"], m["name"], tuple(_arguments(m["arguments"])), m["body"])
        for file in read_functions().values()
        for m in _FUNCTION.finditer(file.text)
    ]


def words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        word = match[0]
        if word.startswith("--"):
            continue
        yield "''" if word.endswith("'") else word.lower()


def clauses(words: tuple[str, ...], *begin: str, end: set[str]) -> Iterator[tuple[str, ...]]:
    """Everything from the words ``begin`` to a word of ``end`` or a closing bracket that was open before."""
    for at in range(len(words)):
        if words[at : at + len(begin)] != begin:
            continue
        depth, stop = 0, at + len(begin)
        while stop < len(words) and depth >= 0 and not (depth == 0 and words[stop] in end):
            depth += {"(": 1, ")": -1}.get(words[stop], 0)
            stop += 1
        yield words[at + len(begin) : stop]


def _arguments(text: str) -> list[str]:
    """What a call passes: ``out`` ones are answers."""
    given = (" ".join(part.split()) for part in text.split(","))
    return [argument for argument in given if argument and not argument.startswith("out ")]
