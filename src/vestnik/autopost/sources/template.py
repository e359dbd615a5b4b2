"""Values from a record: a JSONPath (``$.title``), a template (``{title}: {price?}``) or a constant."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import jsonpath
from jsonpath.exceptions import JSONPathError
from pydantic import AfterValidator

from vestnik.errors import VestnikError

_NAME: Final = re.compile(r"\{(\w+(?:\.\w+)*)(\|html)?(\?)?\}")
_PIECE: Final = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]|[^{}]+")
_PATH: Final = re.compile(r"\$([.\[]|$)")
_MISSING: Final = object()

Form = Literal["plain", "html"]


class MappingFailed(VestnikError):
    """One record does not give what the mapping asks for."""


@dataclass(frozen=True, slots=True)
class Refused:
    """In place of a value that no post can have."""

    reason: str


@dataclass(frozen=True, slots=True)
class Constant:
    text: str


class Path:
    """A JSONPath. What it does not find is not there, and that is no fault."""

    def __init__(self, text: str) -> None:
        try:
            self._path = jsonpath.compile(text)
        except (JSONPathError, RecursionError) as e:
            reason = str(e).splitlines()[0] if isinstance(e, JSONPathError) else "nested too deep"
            raise ValueError(f"{text!r} is not a JSONPath: {reason}") from None

    def all(self, record: Any) -> list[Any]:
        try:
            return list(self._path.findall(record))
        except (JSONPathError, RecursionError, TypeError, ValueError) as e:
            raise MappingFailed(f"{self._path} cannot be followed: {type(e).__name__}") from None

    def value(self, record: Any) -> Any:
        found = self.all(record)
        return found[0] if len(found) == 1 else found or None


@dataclass(frozen=True, slots=True)
class Name:
    path: tuple[str, ...]
    form: Form
    optional: bool

    def value(self, record: Any) -> Any:
        found = record
        for step in self.path:
            found = _step(found, step)
        if found is None or found is _MISSING:
            if self.optional:
                return None
            raise MappingFailed(f"{'.'.join(self.path)} is missing; write {{{'.'.join(self.path)}?}} if it may be")
        return found


@dataclass(frozen=True, slots=True)
class Template:
    pieces: tuple[str | Name, ...]

    @property
    def names(self) -> list[Name]:
        return [piece for piece in self.pieces if isinstance(piece, Name)]

    @property
    def alone(self) -> Name | None:
        """The only name, when there is nothing else: its value need not become text."""
        piece = self.pieces[0]
        return piece if len(self.pieces) == 1 and isinstance(piece, Name) else None

    def filled(self, record: Any, shown: Callable[[Any, Form], str]) -> str:
        """``shown`` makes a value fit for where it stands."""
        return "".join(
            piece if isinstance(piece, str) else shown(piece.value(record), piece.form) for piece in self.pieces
        )


Expression = Constant | Path | Template


@lru_cache(maxsize=2048)
def expression(text: str) -> Expression:
    """ValueError says what is wrong with it."""
    if _PATH.match(text):
        return Path(text)
    pieces = [_piece(piece) for piece in _PIECE.findall(text)]
    if any(isinstance(piece, Name) for piece in pieces):
        return Template(tuple(pieces))
    return Constant("".join(piece for piece in pieces if isinstance(piece, str)))


def value_of(text: str, record: Any) -> Any:
    """What an expression gives, with its type where it is one value."""
    asked = expression(text)
    if isinstance(asked, Constant):
        return asked.text
    if isinstance(asked, Path):
        return asked.value(record)
    return asked.alone.value(record) if asked.alone else asked.filled(record, lambda value, _: as_text(value))


def as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return ", ".join(as_text(each) for each in value)
    if isinstance(value, Refused):
        raise MappingFailed(value.reason)
    raise MappingFailed("an object cannot become text; name one of its fields")


def _piece(piece: str) -> str | Name:
    if piece in ("{{", "}}"):
        return piece[0]
    if piece[0] not in "{}":
        return piece
    found = _NAME.fullmatch(piece)
    if found is None:
        raise ValueError(f"{piece!r} names no field; write {{title}}, and {{{{ for the character itself")
    return Name(tuple(found[1].split(".")), "html" if found[2] else "plain", bool(found[3]))


def _step(found: Any, step: str) -> Any:
    if isinstance(found, dict):
        return found.get(step, _MISSING)
    if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
        return found[int(step)]
    return _MISSING


def _checked(text: str) -> str:
    expression(text)
    return text


Expr = Annotated[str, AfterValidator(_checked)]
