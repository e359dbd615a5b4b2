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


class Media(BaseModel):
    """Exactly one of url, upload, blob_ref, file_id and attachment_token says what it is."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["image", "video", "audio", "file", "animation"]
    url: str | None = Field(None, max_length=2048, description="Fetched once; the post waits until it is there.")
    upload: str | None = Field(
        None, min_length=1, max_length=2048, description="The name of a part of the same multipart/form-data request."
    )
    blob_ref: str | None = Field(None, min_length=1, max_length=2048, description="A file that came before.")
    file_id: str | None = Field(
        None, min_length=1, max_length=2048, description="Telegram's own, of the channel's bot."
    )
    attachment_token: str | None = Field(None, min_length=1, max_length=2048, description="MAX's own.")
    caption: str | None = Field(None, max_length=4096)


class PushPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str | None = Field(None, description="The post. Text, links or media are needed.")
    parse_mode: Literal["HTML", "Markdown", "None"] | None = Field(
        None, description="How the text is marked up. Without it the channel's own setting counts, else None."
    )
    media: list[Media] | None = Field(None, max_length=100, description="Pictures and files, in the order of the post.")
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
    scheduled_for: str | None = Field(
        None, description="Not before this moment, with its offset: 2027-01-31T09:00:00+03:00."
    )
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
    media_pending: int | None = Field(None, description="How many of the queued wait until their media are fetched.")


class Duplicate(BaseModel):
    outcome: Literal["duplicate"]


class Problem(BaseModel):
    type: str
    title: str
    status: int
    detail: str
    errors: list[str] | None = None


# The payload is read by hand, to keep the hot path bare, so its schema is named by hand.
_WHERE = "#/components/schemas/{model}"
PAYLOAD = {"$ref": _WHERE.format(model=PushPayload.__name__)}


def payload_schemas() -> dict[str, Any]:
    """What ``PAYLOAD`` refers to, for the components of the description."""
    schema = PushPayload.model_json_schema(ref_template=_WHERE)
    return {**schema.pop("$defs", {}), PushPayload.__name__: schema}


def _refusal(what: str) -> dict[str, Any]:
    return {
        "description": what,
        "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
    }


_FORM = {
    "type": "object",
    "required": ["payload"],
    "properties": {"payload": {**PAYLOAD, "description": "The first part, as JSON."}},
    "additionalProperties": {
        "type": "string",
        "format": "binary",
        "description": "A file; `media[].upload` of the payload has its name.",
    },
}

PUSH_DOCUMENTATION: dict[str, Any] = {
    "status_code": 202,
    "tags": ["push"],
    "summary": "Publish a post",
    "responses": {
        202: {"model": Accepted, "description": "Stored, and queued for every channel that wants it."},
        200: {"model": Duplicate, "description": "This request came before; nothing was done."},
        400: _refusal("The form, or the connection, breaks off before its end."),
        401: _refusal("No secret, or none that an enabled endpoint has."),
        413: _refusal("Larger than the endpoint takes, or one of its files is larger than this server does."),
        422: _refusal("Not a payload: `errors` names every fault."),
        429: _refusal("Faster than the endpoint takes; see Retry-After."),
        503: _refusal("The database or the object store is away; no post was made."),
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": PAYLOAD},
                "multipart/form-data": {"schema": _FORM},
            },
        },
        "security": [{"endpointSecret": []}],
    },
}
