"""``vestnik endpoint`` and ``vestnik apikey``: who may push, who may look."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import typer
from rich.markup import escape

from vestnik.autopost import verbs
from vestnik.cli.operator import operator_name
from vestnik.cli.output import AsJson, console, show
from vestnik.cli.session import with_pool
from vestnik.ops import access

endpoints = typer.Typer(help="Endpoints: the doors that posts come in by.", no_args_is_help=True)
apikeys = typer.Typer(help="API keys: what opens the management API of a workspace.", no_args_is_help=True)

Workspace = Annotated[str, typer.Argument(help="The workspace.")]
OneWorkspace = Annotated[str | None, typer.Option("--workspace", "-w", help="Only this workspace.")]


@endpoints.command("create")
def create_endpoint(
    workspace: Workspace,
    endpoint: Annotated[str, typer.Argument(help="A name for the endpoint.")] = "main",
    kind: Annotated[Literal["webhook_push", "bot_webhook"], typer.Option(help="What comes in.")] = "webhook_push",
    rps: Annotated[float, typer.Option(help="Requests a second that it takes.", min=0.001)] = 5.0,
) -> None:
    """Create an endpoint and print its secret."""
    actor = operator_name(None)
    _show_secret(
        with_pool(lambda pool: verbs.create_endpoint(pool, workspace, endpoint, kind=kind, rps=rps, actor=actor))
    )


@endpoints.command("rotate")
def rotate_endpoint(workspace: Workspace, endpoint: Annotated[str, typer.Argument(help="The endpoint.")]) -> None:
    """Make a new endpoint with a new secret, and shut the old one."""
    new_id, secret = with_pool(lambda pool: verbs.rotate_endpoint(pool, workspace, endpoint, actor=operator_name(None)))
    console.print(f"{escape(endpoint)} is shut, [bold]{escape(new_id)}[/] takes its place")
    _show_secret(secret)


@endpoints.command("list")
def list_endpoints(workspace: OneWorkspace = None, as_json: AsJson = False) -> None:
    """List the endpoints, shut ones too."""
    rows = with_pool(lambda pool: verbs.list_endpoints(pool, workspace))
    columns = (
        "workspace_id",
        "endpoint_id",
        "kind",
        "enabled",
        "ingress_rps",
        "max_payload_bytes",
        "created_at",
    )
    show(rows, columns, as_json=as_json, empty="There is no endpoint yet: vestnik endpoint create WORKSPACE")


@apikeys.command("create")
def create_key(
    workspace: Workspace,
    name: Annotated[str, typer.Argument(help="Who will use it.")],
    access_: Annotated[Literal["read", "full"], typer.Option("--access", help="What it may do.")] = "read",
) -> None:
    """Create an API key and print it."""
    _show_secret(with_pool(lambda pool: access.create_key(pool, workspace, name, access_, actor=operator_name(None))))


@apikeys.command("list")
def list_keys(workspace: OneWorkspace = None, as_json: AsJson = False) -> None:
    """List the keys, revoked ones too."""
    rows = with_pool(lambda pool: access.list_keys(pool, workspace))
    columns = ("workspace_id", "key_id", "name", "access", "created_at", "last_used_at", "revoked_at")
    show(rows, columns, as_json=as_json, empty="There is no API key yet: vestnik apikey create WORKSPACE NAME")


@apikeys.command("revoke")
def revoke_key(key_id: Annotated[UUID, typer.Argument(help="The key's id, as listed.")]) -> None:
    """Make a key useless."""
    with_pool(lambda pool: access.revoke_key(pool, key_id, actor=operator_name(None)))
    console.print("revoked")


def _show_secret(secret: str) -> None:
    typer.echo(secret)
    typer.echo("Keep it now: only its hash is stored.", err=True)
