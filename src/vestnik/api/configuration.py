"""``/v1/workspaces/{ws}/…``: what a workspace is configured with; changed by declaring it, as ``vestnik apply`` does."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException

from vestnik.api.access import OwnsService
from vestnik.api.bodies import described, document
from vestnik.api.configuration_schema import (
    AppliedChanges,
    Channel,
    Limit,
    NewSecret,
    OfCredential,
    OfEndpoint,
    OfSource,
    OfTemplate,
    Template,
    WorkspaceRow,
)
from vestnik.api.declaring import declare, named
from vestnik.api.workspace import OWNERS_ONLY, READ_ONLY, REFUSED, Answers, Changing, Database, Owning, Workspace
from vestnik.autopost import configuration, declaration, verbs
from vestnik.autopost.sources import verbs as sources
from vestnik.ops.secrets.credentials import Credentials

Name = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
Platform = Annotated[str, Path(max_length=64, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
DryRun = Annotated[bool, Query(description="Answer what would change, and change nothing.")]
IN_USE: Answers = {409: {"model": REFUSED[404]["model"], "description": "It is in use."}}


def configuration_routes(credentials: Credentials) -> APIRouter:
    router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["configuration"], responses=REFUSED)
    for add in (_workspace_routes, _channel_routes, _endpoint_routes, _other_routes, _credential_routes):
        add(router, credentials)
    return router


def _workspace_routes(router: APIRouter, credentials: Credentials) -> None:
    @router.get("", summary="The workspace")
    async def workspace(pool: Database, workspace_id: Workspace) -> WorkspaceRow:
        rows = await configuration.list_workspaces(pool, [workspace_id])
        if not rows:
            raise HTTPException(404, "There is no such workspace.")
        return WorkspaceRow(**rows[0])

    @router.post(
        "/apply",
        summary="Make the workspace what a declaration says",
        openapi_extra=described(declaration.Workspace),
        responses=READ_ONLY,
    )
    async def apply_workspace(
        request: Request, pool: Database, by: Changing, owns_service: OwnsService, dry_run: DryRun = False
    ) -> AppliedChanges:
        """As `vestnik apply`: what is written is made true, what is not written is left alone. Credentials in it, and sources
        that send one, take an owner; sources that read a database take an owner of the service."""
        return await declare(pool, credentials, by, await document(request), dry_run=dry_run, owns_service=owns_service)

    @router.get("/policy", summary="The rules of the workspace")
    async def policy(pool: Database, workspace_id: Workspace) -> dict[str, Any]:
        return await configuration.show_policy(pool, workspace_id)

    @router.put("/policy", summary="Change rules", openapi_extra=described(declaration.Policy), responses=READ_ONLY)
    async def put_policy(request: Request, pool: Database, by: Changing, dry_run: DryRun = False) -> AppliedChanges:
        """What is not named stays as it is."""
        return await declare(pool, credentials, by, {"policy": await document(request)}, dry_run=dry_run)


def _channel_routes(router: APIRouter, credentials: Credentials) -> None:
    @router.get("/channels", summary="The channels, by their ids")
    async def channels(
        pool: Database,
        workspace_id: Workspace,
        platform: Annotated[str | None, Query(max_length=64, pattern=r"^[^\x00]*$")] = None,
        after: Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$", description="Only those behind it.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> list[Channel]:
        rows = await configuration.list_channels(pool, workspace_id, platform=platform, after=after, limit=limit)
        return [Channel(**row) for row in rows]

    @router.get("/channels/{channel_id:path}", summary="One channel")
    async def channel(pool: Database, workspace_id: Workspace, channel_id: Name) -> Channel:
        return Channel(**await configuration.show_channel(pool, workspace_id, channel_id))

    @router.put(
        "/channels/{channel_id:path}",
        summary="Make or change a channel",
        openapi_extra=described(declaration.Channel),
        responses=READ_ONLY,
    )
    async def put_channel(
        request: Request, pool: Database, by: Changing, channel_id: Name, dry_run: DryRun = False
    ) -> AppliedChanges:
        """What is not named stays as it is; a new one begins with the defaults."""
        body = {"channels": [named(await document(request), id=channel_id)]}
        return await declare(pool, credentials, by, body, dry_run=dry_run)

    @router.delete(
        "/channels/{channel_id:path}",
        summary="Take back a channel that never had a delivery",
        status_code=204,
        responses=READ_ONLY | IN_USE,
    )
    async def delete_channel(pool: Database, by: Changing, channel_id: Name) -> None:
        await configuration.remove_channel(pool, by.workspace_id, channel_id, actor=by.name)


def _endpoint_routes(router: APIRouter, credentials: Credentials) -> None:
    @router.get("/endpoints", summary="The doors that posts come in by, shut ones too")
    async def endpoints(pool: Database, workspace_id: Workspace) -> list[OfEndpoint]:
        return [OfEndpoint(**row) for row in await verbs.list_endpoints(pool, workspace_id)]

    @router.put(
        "/endpoints/{endpoint_id}",
        summary="Make or change an endpoint",
        openapi_extra=described(declaration.Endpoint),
        responses=READ_ONLY,
    )
    async def put_endpoint(
        request: Request, pool: Database, by: Changing, endpoint_id: Name, dry_run: DryRun = False
    ) -> AppliedChanges:
        """A new one's secret is answered this once, in `secrets`. `enabled: false` shuts it."""
        body = {"endpoints": [named(await document(request), id=endpoint_id)]}
        return await declare(pool, credentials, by, body, dry_run=dry_run)

    @router.post(
        "/endpoints/{endpoint_id}/rotate",
        summary="A new endpoint with a new secret; the old one is shut",
        status_code=201,
        responses=READ_ONLY,
    )
    async def rotate(pool: Database, by: Changing, endpoint_id: Name) -> NewSecret:
        new_id, secret = await verbs.rotate_endpoint(pool, by.workspace_id, endpoint_id, actor=by.name)
        return NewSecret(endpoint_id=new_id, secret=secret)


def _other_routes(router: APIRouter, credentials: Credentials) -> None:
    @router.get("/limits", summary="How fast each group of channels may send together")
    async def limits(pool: Database, workspace_id: Workspace) -> list[Limit]:
        return [Limit(**row) for row in await configuration.list_limits(pool, workspace_id)]

    @router.put(
        "/limits/{platform}/{rate_group:path}",
        summary="Make or change a limit",
        openapi_extra=described(declaration.Limit),
        responses=READ_ONLY,
    )
    async def put_limit(
        request: Request, pool: Database, by: Changing, platform: Platform, rate_group: Name, dry_run: DryRun = False
    ) -> AppliedChanges:
        body = {"limits": [named(await document(request), platform=platform, rate_group=rate_group)]}
        return await declare(pool, credentials, by, body, dry_run=dry_run)

    @router.get("/templates", summary="The templates, each in its newest version")
    async def templates(pool: Database, workspace_id: Workspace) -> list[OfTemplate]:
        return [OfTemplate(**row) for row in await configuration.list_templates(pool, workspace_id)]

    @router.get("/templates/{template_id}", summary="One template, in its newest version or another")
    async def template(
        pool: Database,
        workspace_id: Workspace,
        template_id: Name,
        version: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    ) -> Template:
        return Template(**await configuration.show_template(pool, workspace_id, template_id, version))

    @router.put(
        "/templates/{template_id}",
        summary="Make a template, or a new version of one",
        openapi_extra=described(declaration.Template),
        responses=READ_ONLY,
    )
    async def put_template(
        request: Request, pool: Database, by: Changing, template_id: Name, dry_run: DryRun = False
    ) -> AppliedChanges:
        """Posts that were rendered with an older version keep their text."""
        body = {"templates": [named(await document(request), id=template_id)]}
        return await declare(pool, credentials, by, body, dry_run=dry_run)

    @router.get("/sources/{source_id}", summary="One source")
    async def source(pool: Database, workspace_id: Workspace, source_id: Name) -> OfSource:
        return OfSource(**await configuration.show_source(pool, workspace_id, source_id))

    @router.put(
        "/sources/{source_id}",
        summary="Make or change a source",
        openapi_extra=described(declaration.Source),
        responses=READ_ONLY,
    )
    async def put_source(
        request: Request,
        pool: Database,
        by: Changing,
        owns_service: OwnsService,
        source_id: Name,
        dry_run: DryRun = False,
    ) -> AppliedChanges:
        """One that sends a credential takes an owner; one that reads a database takes an owner of the service."""
        body = {"sources": [named(await document(request), id=source_id)]}
        return await declare(pool, credentials, by, body, dry_run=dry_run, owns_service=owns_service)

    @router.delete(
        "/sources/{source_id}",
        summary="Forget a source and what it knows of its items",
        status_code=204,
        responses=READ_ONLY,
    )
    async def delete_source(pool: Database, by: Changing, source_id: Name) -> None:
        await sources.remove_source(pool, by.workspace_id, source_id, actor=by.name)


def _credential_routes(router: APIRouter, credentials: Credentials) -> None:
    @router.get("/credentials", summary="The names of the credentials; what they are is never answered")
    async def list_credentials(pool: Database, workspace_id: Workspace) -> list[OfCredential]:
        return [OfCredential(**row) for row in await configuration.list_credentials(pool, workspace_id)]

    @router.put(
        "/credentials/{platform}/{auth_ref:path}",
        summary="Store a credential, or another token for it",
        openapi_extra=described(declaration.Credential),
        responses=OWNERS_ONLY,
    )
    async def put_credential(
        request: Request,
        pool: Database,
        by: Owning,
        owns_service: OwnsService,
        platform: Platform,
        auth_ref: Name,
        dry_run: DryRun = False,
    ) -> AppliedChanges:
        """In use within seconds. Channels that were refused for the old token go on. The address of a database takes an owner
        of the service."""
        body = {"credentials": [named(await document(request), platform=platform, auth_ref=auth_ref)]}
        return await declare(pool, credentials, by, body, dry_run=dry_run, owns_service=owns_service)

    @router.delete(
        "/credentials/{platform}/{auth_ref:path}",
        summary="Forget a credential",
        status_code=204,
        responses=OWNERS_ONLY | IN_USE,
    )
    async def delete_credential(
        pool: Database,
        by: Owning,
        platform: Platform,
        auth_ref: Name,
        although_used: Annotated[bool, Query(description="Also when channels send with it: they will fail.")] = False,
    ) -> None:
        await configuration.remove_credential(
            pool, by.workspace_id, platform, auth_ref, although_used=although_used, actor=by.name
        )
