"""``vestnik operator`` and ``vestnik changes``: who may do what, and who did."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer
from rich.markup import escape

from vestnik.autopost import changes as record
from vestnik.cli.operator import operator_name
from vestnik.cli.output import AsJson, console, show
from vestnik.cli.session import with_pool
from vestnik.errors import ConfigError
from vestnik.ops import operators

app = typer.Typer(help="Operators: the people who may sign in, and what each may do where.", no_args_is_help=True)

Login = Annotated[str, typer.Argument(help="The name to sign in with: a-z, 0-9, '_', '.', '@', '-'.")]
Role = Literal["owner", "editor", "viewer", "security"]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input instead of asking for it.")
]
OfWorkspace = Annotated[
    str, typer.Option("--workspace", "-w", help="Where; '*' is every workspace and the service itself.")
]


@app.command("add")
def add(
    login: Login,
    workspace: OfWorkspace = operators.SERVICE,
    role: Annotated[Role | None, typer.Option(help="What the operator may do there; nothing if not given.")] = None,
    name: Annotated[str, typer.Option(help="The name of the person.")] = "",
    language: Annotated[Literal["en", "ru"], typer.Option(help="Of what is written to the operator.")] = "en",
    password_stdin: PasswordStdin = False,
) -> None:
    """Make an operator. The password is asked for twice, and not shown."""
    actor, password = operator_name(None), _password(password_stdin)

    with_pool(
        lambda pool: operators.add_operator(
            pool, login, password, name=name, language=language, role=role, workspace_id=workspace, actor=actor
        )
    )
    may = f"is {role} of {_where(workspace)}" if role else f"may do nothing yet: vestnik operator role {login} ROLE"
    console.print(f"{escape(login)} {escape(may)}")


@app.command("list")
def list_operators(
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", help="Only those who may do something there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the operators with their roles, by workspace."""
    rows = with_pool(lambda pool: operators.list_operators(pool, workspace))
    if not as_json:
        rows = [row | {"roles": _told(row["roles"])} for row in rows]
    columns = ("login", "name", "roles", "language", "created_at", "disabled_at")
    show(rows, columns, as_json=as_json, empty="There is no operator: vestnik operator add LOGIN --role owner")


@app.command("role")
def role(
    login: Login,
    role: Annotated[
        Role, typer.Argument(help="owner, editor or viewer, each in place of the one before; security beside.")
    ],
    workspace: OfWorkspace = operators.SERVICE,
    take: Annotated[bool, typer.Option("--take", help="Take it away.")] = False,
) -> None:
    """Give an operator a role, or take it away."""
    verb = operators.take if take else operators.grant
    new = with_pool(lambda pool: verb(pool, workspace, login, role, actor=operator_name(None)))
    console.print("done" if new else "so it was already")


@app.command("password")
def password(login: Login, password_stdin: PasswordStdin = False) -> None:
    """Set another password; all sessions of the operator end."""
    given = _password(password_stdin)
    with_pool(lambda pool: operators.set_password(pool, login, given, actor=operator_name(None)))
    console.print("done; all sessions have ended")


@app.command("disable")
def disable(login: Login) -> None:
    """Shut an operator out; all sessions end."""
    _set_enabled(login, False)


@app.command("enable")
def enable(login: Login) -> None:
    """Let an operator in again."""
    _set_enabled(login, True)


@app.command("remove")
def remove(login: Login) -> None:
    """Remove an operator with all roles and sessions; what was done stays in the record."""
    with_pool(lambda pool: operators.remove_operator(pool, login, actor=operator_name(None)))
    console.print("removed")


def changes(
    workspace: Annotated[str, typer.Argument(help="The workspace; '*' is the service itself.")],
    actor: Annotated[str | None, typer.Option("--actor", help="Only what this one did.")] = None,
    limit: Annotated[int, typer.Option(help="About so many.", min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """Show who changed what in the last 30 days, newest first."""
    rows = with_pool(lambda pool: record.list_changes(pool, workspace, actor=actor, limit=limit))
    columns = ("ts", "actor", "action", "subject", "details")
    show(rows, columns, as_json=as_json, empty="Nobody changed anything in the last 30 days.")


def _set_enabled(login: str, enabled: bool) -> None:
    new = with_pool(lambda pool: operators.set_enabled(pool, login, enabled, actor=operator_name(None)))
    console.print("done" if new else "so it was already")


def _password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal to ask for the password", hint="--password-stdin")
    given: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return given


def _told(roles: dict[str, list[str]]) -> str:
    return "; ".join(f"{', '.join(names)} of {_where(workspace)}" for workspace, names in sorted(roles.items()))


def _where(workspace: str) -> str:
    return "everything" if workspace == operators.SERVICE else workspace
