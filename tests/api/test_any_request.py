"""Requests that nobody has thought of: whatever is sent to whichever route, the answer is one that the description names."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from whole_rig import OWNER, Whole

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Of each operation, as many that fit the description as that do not.
EXAMPLES = int(os.environ.get("VESTNIK_TEST_EXAMPLES", "2"))


async def test_every_answer_is_one_that_the_description_names(whole: Whole) -> None:
    failures = await asyncio.to_thread(lambda: list(found_in(whole)))
    assert not failures, "\n\n".join(failures[:20]) + f"\n\n{len(failures)} operations fail"


def found_in(whole: Whole) -> Any:
    schema = schemathesis.openapi.from_dict(whole.description)
    with requests.Session() as session:
        session.auth = OWNER
        for result in schema.get_all_operations():
            operation = result.ok()
            takes_nothing = not (operation.path_parameters or operation.query or operation.body)
            for mode in (GenerationMode.POSITIVE, *([] if takes_nothing else [GenerationMode.NEGATIVE])):
                try:
                    try_operation(whole, operation, mode, session)
                except (Exception, BaseExceptionGroup) as e:
                    yield f"{operation.method.upper()} {operation.path} {mode.value}: {told(e)}"


def try_operation(whole: Whole, operation: Any, mode: GenerationMode, session: requests.Session) -> None:
    turn = 0

    @seeded(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        nonlocal turn
        turn += 1
        known = whole.known if turn % 2 else {"ws": "shop"}
        if case.path_parameters and (mode is GenerationMode.POSITIVE or turn % 3):
            case.path_parameters |= {name: value for name, value in known.items() if name in case.path_parameters}
        response = case.call(base_url=whole.api.url, session=session, timeout=30)
        case.validate_response(response, checks=CHECKS)

    check()


def told(error: BaseException) -> str:
    inner = getattr(error, "exceptions", None)
    return " | ".join(told(each) for each in inner) if inner else f"{type(error).__name__}: {str(error)[:600]}"
