"""``vestnik findings``: what does not hold together."""

from __future__ import annotations

from typing import Annotated

import typer

from vestnik.autopost import proof
from vestnik.cli.output import AsJson, emit, show
from vestnik.cli.session import with_pool


def findings(
    workspace: Annotated[str, typer.Argument(help="The workspace to look into.")],
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=100_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List what the integrity and proof jobs have found and nobody has mended, the newest first."""
    rows = with_pool(lambda pool: proof.findings(pool, workspace, limit=limit))
    if as_json:
        emit(rows)
        return
    show(rows, ("found_at", "source", "kind", "subject", "says"), as_json=False, empty="Everything holds together.")
