"""The SQL of the workflows and their calls of the API, made by hand in the order of the lines: n8n without n8n."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import aiohttp
from flows import Flow
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.rows import dict_row

from vestnik.sandbox.server import Sandbox

INGEST, DISPATCHER, MONITOR = (Flow(name) for name in ("01_ingest", "02_dispatcher", "03_monitor"))
Rows = list[dict[str, Any]]


@dataclass
class ByHand:
    db: AsyncConnection[Any]
    http: aiohttp.ClientSession
    api_url: str
    key: str
    sandbox: Sandbox

    async def sql(self, flow: Flow, node: str, *parameters: Any) -> Rows:
        """What the node returns: its parameters are texts and numbers, as n8n's are."""
        given = [json.dumps(p) if isinstance(p, dict | list) else p for p in parameters]
        async with AsyncRawCursor(self.db, row_factory=dict_row) as cursor:
            await cursor.execute(flow.sql(node), given or None)
            return await cursor.fetchall()

    async def push(self, secret: str, body: Any) -> tuple[int, Any]:
        """01_ingest."""
        text = json.dumps(body)
        (door,) = await self.sql(INGEST, "Whose door?", secret, len(text), text)
        if door["workspace_id"] is None:
            return 401, None
        where = (door["workspace_id"], door["endpoint_id"])
        if door["too_large"]:
            await self.sql(INGEST, "Note: too large", *where, "ingress_payload_rejected", "too_large")
            return 413, door["max_payload_bytes"]
        (gate,) = await self.sql(INGEST, "Rate gate", *where, text)
        if not gate["admitted"]:
            await self.sql(INGEST, "Note: too fast", *where, "ingress_rate_limited", "rate")
            return 429, gate["retry_after"]
        if not gate["readable"]:
            await self.sql(INGEST, "Note: not storable", *where, "ingress_payload_rejected", "invalid")
            return 422, None
        (done,) = await self.sql(INGEST, "Enqueue", *where, text)
        if done["outcome"] == "duplicate":
            await self.sql(INGEST, "Note: seen before", *where, "ingress_dedup_dropped", "seen_before")
            return 200, None
        if done["outcome"] == "invalid":
            await self.sql(INGEST, "Note: invalid", *where, "ingress_payload_rejected", "invalid")
            return 422, done["problems"]
        return 202, done

    async def dispatch(self, workspaces: str = "") -> list[str]:
        """02_dispatcher, once; what became of each send."""
        outcomes = []
        for row in await self.sql(DISPATCHER, "Workspaces with work", workspaces):
            await self.sql(DISPATCHER, "Claim", row["workspace_id"], "n8n-1", 20)
            for begun in await self.sql(DISPATCHER, "Begin", row["workspace_id"], "n8n-1", 20):
                outcomes.append(await self._send(begun))
        return outcomes

    async def _send(self, begun: dict[str, Any]) -> str:
        key = (begun["workspace_id"], begun["delivery_id"], begun["lease"])
        verb = "send_media" if begun["has_media"] else "send_text"
        body = {
            "workspace_id": begun["workspace_id"],
            "delivery_id": str(begun["delivery_id"]),
            "lease": begun["lease"],
        }
        status, said = await self._call(f"{begun['platform']}/{verb}", body)
        if said.get("ok"):
            sent = (said["provider_message_id"], said["sent_at"], said.get("meta", {}))
            return _outcome(await self.sql(DISPATCHER, "Mark sent", *key, *sent))
        match said.get("error", {}).get("category"):
            case "TRANSIENT":
                return _outcome(await self.sql(DISPATCHER, "Schedule retry", *key, said["error"]))
            case "PERMANENT":
                return _outcome(await self.sql(DISPATCHER, "Fail permanently", *key, said["error"]))
        error = {
            "category": "TRANSIENT",
            "scope": "delivery",
            "code": f"api_{status}",
            "message": said["detail"],
            "raw": {},
        }
        return _outcome(await self.sql(DISPATCHER, "Retry: no answer", *key, error))

    async def monitor(self) -> list[Any]:
        """03_monitor, once; the alerts that are on."""
        alerts = []
        for row in await self.sql(MONITOR, "Active workspaces", ""):
            (looked,) = await self.sql(MONITOR, "Monitor", row["workspace_id"])
            alerts += looked["alerts"]
            await self.sql(MONITOR, "Kick", row["workspace_id"])
            await self.sql(MONITOR, "Health snapshot", row["workspace_id"])
        for target in await self.sql(MONITOR, "Targets to tell", ""):
            for taken in await self.sql(MONITOR, "Take the notices", target["workspace_id"], target["target_id"]):
                await self._tell(taken["workspace_id"], taken["target"], taken["notices"])
        return alerts

    async def _tell(self, workspace_id: str, target: dict[str, Any], notices: Any) -> None:
        text = "\n".join(notice["summary"] for notice in notices)
        body = {
            "workspace_id": workspace_id,
            "target_id": target["address"],
            "auth_ref": target["auth_ref"],
            "text": text,
        }
        _, said = await self._call(f"{target['kind']}/send_text", body)
        key = (workspace_id, target["target_id"], target["lease"], notices)
        if said.get("ok"):
            await self.sql(MONITOR, "They know", *key, None)
        else:
            error = {"type": "TellFailed", "code": said["error"]["code"], "message": "the chat was not reached"}
            await self.sql(MONITOR, "Tell them later", *key, error)

    async def pull(self, entries: list[dict[str, str]] | None) -> int:
        """The lower half of 01_ingest, with what n8n has read of the feed; None: it could not."""
        taken = 0
        for source in await self.sql(INGEST, "Sources to read"):
            (run,) = await self.sql(INGEST, "Begin the run", source["workspace_id"], source["source_id"])
            key = (source["workspace_id"], source["source_id"], run["run_id"])
            if entries is None:
                error = {"code": "n8n", "message": "n8n could not read the feed", "permanent": False}
                await self.sql(INGEST, "The run has failed", *key, "failed", error)
                continue
            page = (entries or [{}], run["is_first"], run["backlog"])
            (done,) = await self.sql(INGEST, "Take what is new", *key, *page)
            taken += done["taken"]
            await self.sql(INGEST, "The run has ended", *key, "ok", None)
        return taken

    async def _call(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.key}"}
        async with self.http.post(f"{self.api_url}/v1/adapters/{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)


def _outcome(rows: Rows) -> str:
    (row,) = rows
    return str(row["outcome"])
