"""What a model found wrong in a file, for the person who wrote it: the place in their words, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_WORDS = (
    (r"^Value error, ", ""),
    (r"^Field required$", "is missing"),
    (r"^Input should be a valid (dictionary|mapping)( or instance of \w+)?$", "must be keys with values"),
    (r"^Input should be a valid list$", "must be a list; begin each of its items with a dash"),
    (r"^Input should be a valid ", "must be a "),
    (r"^Input should ", "must "),
    (r"^must be a (?=integer)", "must be an "),
    (r"datetime\.timedelta\(days=(\d+)\)", r"\1 d"),
    (r"datetime\.timedelta\((?:seconds=)?(\d+)\)", r"\1 s"),
)


def told(model: type[BaseModel], document: Any, error: ValidationError, root: str) -> str:
    """Every fault by its place; ``root`` is what the whole document is called."""
    return "; ".join(f"{_place(document, f['loc']) or root}: {_said(model, f)}" for f in error.errors())


def meant(name: str, known: Iterable[str]) -> str:
    """The question to somebody who may have mistyped a name, if there is one."""
    found = get_close_matches(name, known, 1, 0.65)
    return f"; did you mean {found[0]}?" if found else ""


def _place(document: Any, location: tuple[int | str, ...]) -> str:
    """Where in the file. An item of a list goes by its id, if it has one: people do not count from 0."""
    node, names = document, []
    for step in location:
        node = _inside(node, step)
        name = node.get("id") if isinstance(step, int) and isinstance(node, dict) else None
        names.append(str(step if name is None else name))
    return ".".join(names)


def _inside(node: Any, step: int | str) -> Any:
    try:
        return node[step]
    except (LookupError, TypeError):
        return None


def _said(model: type[BaseModel], fault: Any) -> str:
    if fault["type"] in ("time_delta_parsing", "time_delta_type"):
        return "not a duration; write it like 30s, 15m, 2h or 1d"
    if fault["type"] == "extra_forbidden":
        *above, name = fault["loc"]
        return "unknown key" + meant(str(name), _keys([model], above))
    message = str(fault["msg"])
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message


def _keys(models: list[type[BaseModel]], location: list[int | str]) -> set[str]:
    """What may be written at a place."""
    for step in location:
        fields = [field for model in models for name, field in model.model_fields.items() if name == step]
        models = [inner for field in fields for inner in _models(field.annotation)] or models
    return {field.alias or name for model in models for name, field in model.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
