"""Bodies that are declarations: read by the code of ``vestnik apply``, described by its models."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from pydantic import BaseModel
from pydantic_core import from_json

from vestnik.autopost.declaration import (
    Channel,
    Credential,
    Declaration,
    Endpoint,
    Limit,
    Policy,
    Source,
    Template,
    Workspace,
)
from vestnik.autopost.payload import screen

_WHERE = "#/components/schemas/{model}"
_INNER = "Declared{model}"  # the answers have models of the same names
# What stands in the path is not said again in the body.
_BODIES: dict[type[BaseModel], tuple[str, ...]] = {
    Channel: ("id",),
    Credential: ("platform", "auth_ref"),
    Declaration: (),
    Endpoint: ("id",),
    Limit: ("platform", "rate_group"),
    Policy: (),
    Source: ("id",),
    Template: ("id",),
    Workspace: ("id",),
}


async def document(request: Request) -> dict[str, Any]:
    """Raises InvalidPayload for what is no JSON object; BodySize has bounded it."""
    read: dict[str, Any] = from_json(screen(await request.body()))
    return read


def described(model: type[BaseModel]) -> dict[str, Any]:
    """For ``openapi_extra`` of a route that reads its body by ``document``."""
    schema = {"$ref": _WHERE.format(model=f"{model.__name__}Body")}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def declared_schemas() -> dict[str, Any]:
    """What ``described`` refers to, for the components of the description."""
    found: dict[str, Any] = {}
    for model, in_path in _BODIES.items():
        schema = model.model_json_schema(ref_template=_WHERE.format(model=_INNER))
        found |= {_INNER.format(model=name): part for name, part in schema.pop("$defs", {}).items()}
        for name in in_path:
            schema["properties"].pop(name)
        schema["required"] = [name for name in schema.get("required", ()) if name not in in_path]
        found[f"{model.__name__}Body"] = schema
    return found
