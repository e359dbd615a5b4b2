"""What the OpenAPI description says of the push payload.

The judge is the SQL function ``payload_problems``; a test holds both to one corpus of payloads.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Button(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = Field(min_length=1, max_length=64)
    url: str


class PushPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str | None = Field(None, description="The post. Text or links are needed.")
    parse_mode: Literal["HTML", "Markdown", "None"] | None = Field(
        None, description="How the text is marked up. Without it the channel's own setting counts, else None."
    )
    media: list[dict[str, Any]] | None = Field(None, description="Not supported yet: refused by name.")
    links: list[str] | None = Field(None, max_length=20, description="Shown under the text unless it has them already.")
    buttons: list[list[Button]] | None = Field(None, max_length=30, description="Rows of link buttons.")
    disable_preview: bool | None = Field(None, description="No preview of the first link.")
    tags: list[str] | None = Field(
        None, max_length=64, description="Decide, with the hashtags, which channels want it."
    )
    source_ref: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Your id of the post: a second request with it is a duplicate.",
    )
    scheduled_for: str | None = Field(None, description="Not supported yet: refused by name.")
    channels: list[str] | None = Field(None, description="Only these channels, each still subject to its route_filter.")
    source: dict[str, Any] | None = Field(None, description="Where it came from; kept, never sent.")
    workspace_id: Any = Field(None, description="A hint; the secret alone decides the workspace.")
    meta: dict[str, Any] | None = Field(None, description="Anything of yours.")


class Accepted(BaseModel):
    outcome: Literal["accepted"]
    message_id: str
    trace_id: str
    run_id: str
    enqueued: int
    suppressed: int
    failed: int
    routed_by_tags: list[str] | None = None
    warnings: list[str] | None = None


class Duplicate(BaseModel):
    outcome: Literal["duplicate"]


class Problem(BaseModel):
    type: str
    title: str
    status: int
    detail: str
    errors: list[str] | None = None


def _refusal(what: str) -> dict[str, Any]:
    return {
        "description": what,
        "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
    }


PUSH_DOCUMENTATION: dict[str, Any] = {
    "status_code": 202,
    "tags": ["push"],
    "summary": "Publish a post",
    "responses": {
        202: {"model": Accepted, "description": "Stored, and queued for every channel that wants it."},
        200: {"model": Duplicate, "description": "This request came before; nothing was done."},
        401: _refusal("No secret, or none that an enabled endpoint has."),
        413: _refusal("Larger than the endpoint takes."),
        422: _refusal("Not a payload: `errors` names every fault."),
        429: _refusal("Faster than the endpoint takes; see Retry-After."),
        503: _refusal("The database is away; nothing was kept."),
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": PushPayload.model_json_schema()}},
        },
        "security": [{"endpointSecret": []}],
    },
}
