"""``/docs``: whoever opens the service in a browser reads what it can do, without anything from elsewhere."""

from __future__ import annotations

import re

from api_rig import Api


async def page(api: Api, path: str) -> str:
    async with api.http.get(f"{api.url}{path}") as response:
        assert (response.status, response.content_type) == (200, "text/html")
        return await response.text()


async def test_every_route_and_schema_is_described(api: Api) -> None:
    shown = await page(api, "/docs")
    _, described = await api.get("/openapi.json")
    for path in described["paths"]:
        assert f"<code>{path}</code>" in shown
    for name in described["components"]["schemas"]:
        assert f"id='{name}'" in shown


async def test_it_needs_nothing_from_elsewhere(api: Api) -> None:
    shown = await page(api, "/docs")
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", shown)
    assert "<script" not in shown


async def test_its_links_lead_somewhere(api: Api) -> None:
    shown = await page(api, "/docs")
    named = set(re.findall(r"href='#([^']+)'", shown))
    assert named
    assert named <= set(re.findall(r"id='([^']+)'", shown))


async def test_the_root_leads_to_it(api: Api) -> None:
    assert await page(api, "/") == await page(api, "/docs")


async def test_what_a_key_may_be_told_is_described(api: Api) -> None:
    _, described = await api.get("/openapi.json")
    for path, operations in described["paths"].items():
        for operation in operations.values():
            if path.startswith("/v1/workspaces/"):
                assert {"401", "404", "422"} <= set(operation["responses"]), path
                assert "HTTPValidationError" not in str(operation)
