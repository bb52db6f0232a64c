"""Sends each case of a table through the MCP SDK for Python and checks the result
that the SDK reports.

    client.py http|stdio legacy|auto TABLE...

The SDK would refuse to send most cases. So the client asks it for a valid call and
replaces the message on its way to the transport.
"""

import asyncio
import json
import logging
import os
import sys
import warnings
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, JSONRPCRequest, Request
from pydantic import TypeAdapter

TIMEOUT = 60
# The error that the SDK invents when a reply has no JSON-RPC message.
STAND_IN = "Server returned an error response"


def build(value):
    """The value that a table describes. JSON itself cannot express all of them."""
    if isinstance(value, list):
        return [build(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, given),) = value.items()
        if name == "$integer":
            return int(given)
        if name == "$repeat":
            return given[0] * given[1]
        if name == "$copies":
            return [build(given[0])] * given[1]
        if name == "$nested":
            nested = {}
            for _ in range(given):
                nested = {"a": nested}
            return nested
    return {name: build(item) for name, item in value.items()}


class Exchanging:
    """A stream to the transport that replaces the next request."""

    def __init__(self, inner):
        self.inner = inner
        self.case = None
        self.sent = False

    async def send(self, item):
        if self.case is not None and isinstance(item.message, JSONRPCRequest):
            members = {"jsonrpc": "2.0", "id": item.message.id, **self.case}
            # The fields that later revisions require stay, because the case is not about them.
            meta = (item.message.params or {}).get("_meta")
            if meta is not None and isinstance(members.get("params"), dict):
                members["params"] = {**members["params"], "_meta": {**meta, **members["params"].get("_meta", {})}}
            self.case = None
            item = SessionMessage(JSONRPCRequest.model_construct(**members), item.metadata)
            self.sent = True
        await self.inner.send(item)

    async def __aenter__(self):
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *raised):
        return await self.inner.__aexit__(*raised)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@asynccontextmanager
async def transport(kind, key, holder):
    if kind == "http":
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=TIMEOUT) as http,
            streamable_http_client(os.environ["GATEWAY_URL"], http_client=http) as (read, write),
        ):
            holder.append(Exchanging(write))
            yield read, holder[0]
    else:
        environment = {"CONTEXT_BACKEND": os.environ["SERVICE_URL"], "CONTEXT_API_KEY": key}
        server = StdioServerParameters(command=os.environ["GATEWAY"], args=["stdio"], env=environment)
        async with stdio_client(server) as (read, write):
            holder.append(Exchanging(write))
            yield read, holder[0]


async def answer(client, stream, case):
    """The result that the SDK reports: (kind, code, text)."""
    members = {name: build(case[name]) for name in ("method", "params") if name in case}
    method, params = members["method"], members.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    # The headers are made from this call, so it resembles the case.
    if method == "tools/call":
        likeness = {"name": name if isinstance(name, str) else "list_threads", "arguments": {}}
    elif method == "prompts/get":
        likeness = {"name": name if isinstance(name, str) else "recall"}
    elif method == "resources/read":
        uri = params.get("uri") if isinstance(params, dict) else None
        likeness = {"uri": uri if isinstance(uri, str) else "context://entries/1"}
    else:
        likeness = {}
    stream.case, stream.sent = members, False
    try:
        request = Request[dict, str](method=method, params=likeness)
        result = await asyncio.wait_for(client.session.send_request(request, TypeAdapter(dict)), TIMEOUT)
    except MCPError as error:
        if error.error.code == REQUEST_TIMEOUT:
            return "nothing", None, "no answer in time"
        # The SDK's own error when the server has ended.
        if error.error.code == CONNECTION_CLOSED:
            return "nothing", None, "the connection was closed"
        return "error", error.error.code, error.error.message
    except TimeoutError:
        return "nothing", None, "no answer in time"
    if result.get("isError"):
        return "tool-error", None, json.dumps(result["content"])
    return "result", None, ""


def complaint(case, kind, code, text):
    """Why the result is not the expected one; empty when it is."""
    expected = case["expect"]
    allowed = {"refused": ("error", "tool-error"), "answer": ("error", "tool-error", "result")}.get(expected, (expected,))
    if kind not in allowed:
        return f"expected {expected}, got {kind}"
    if text == STAND_IN and case.get("as") != "reader":
        return "the reply holds no JSON-RPC message"
    if kind == "error" and code != case.get("code", code):
        return f"expected code {case['code']}, got {code}"
    if case.get("says", "") not in text and text != STAND_IN:
        return f"the answer lacks {case['says']!r}"
    return ""


async def run(kind, mode, table):
    cases = [case for case in json.loads(Path(table).read_text()) if set(case.get("only", ["python"])) <= {"python", kind, mode}]
    failures = []
    sent = 0
    for caller in ("full", "reader"):
        key = os.environ[f"KEY_{caller.upper()}"]
        holder = []
        async with Client(transport(kind, key, holder), mode=mode) as client:
            stream = holder[0]
            for case in cases:
                if case.get("as", "full") != caller:
                    continue
                sent += 1
                got = await answer(client, stream, case)
                why = complaint(case, *got) if stream.sent else "the SDK did not send it"
                if why:
                    failures.append(f"{case['name']}: {why}: {got[1]} {got[2][:300]}")
    if sent == 0 or sent != len(cases):
        failures.append(f"{sent} of {len(cases)} cases were sent")
    for failure in failures:
        print(f"  {failure}", file=sys.stderr)
    name = Path(table).stem
    print(f"Python, {kind}, {mode}, {name}: {len(cases)} cases, {len(failures)} failures", file=sys.stderr)
    return bool(failures)


async def main():
    kind, mode, *tables = sys.argv[1:]
    failed = [await run(kind, mode, table) for table in tables]
    sys.exit(any(failed))


warnings.filterwarnings("ignore", category=UserWarning)
logging.disable(logging.CRITICAL)
asyncio.run(main())
