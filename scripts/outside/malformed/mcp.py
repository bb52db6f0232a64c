"""Malformed MCP messages, for both transports."""

from . import mutations
from .operations import TOOLS

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "malformed", "version": "1"},
}
METHODS = ["initialize", "server/discover", "tools/list", "resources/list", "resources/read", "resources/templates/list", "prompts/list", "prompts/get", "completion/complete", "ping", "logging/setLevel", "subscriptions/listen", "notifications/cancelled", "notifications/initialized", "tasks/get", "tools/nope", "", "x" * 3000]
IDS = [1, "a", None, 1.5, -1, 2**63, "x" * 5000, [], {}, True]


def good_call(rng, request_id):
    """A valid tool call, of either era."""
    name = rng.choice(list(TOOLS))
    params = {"name": name, "arguments": TOOLS[name]}
    modern = rng.random() < 0.5
    if modern:
        params["_meta"] = META
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}, modern


def malformed(rng, request_id):
    """`(body, modern)` of one malformed message."""
    message, modern = good_call(rng, request_id)
    kind = rng.random()
    if kind < 0.5:
        # A valid message, but an invalid call.
        params = message["params"]
        params = {**params, "arguments": mutations.spoil_value(rng, params["arguments"])}
        if rng.random() < 0.1:
            params["name"] = rng.choice(["", "nope", "store_context ", "x" * 5000, None, 1, "STORE_CONTEXT"])
        return mutations.to_bytes({**message, "params": params}), modern
    if kind < 0.65:
        method = rng.choice(METHODS)
        params = mutations.spoil_value(rng, {"_meta": META, "uri": "context://entries/1", "name": "x", "cursor": "y", "arguments": {"a": "b"}, "protocolVersion": "2025-11-25"})
        return mutations.to_bytes({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}), modern
    if kind < 0.75:
        return mutations.to_bytes({**message, "id": rng.choice(IDS)}), modern
    if kind < 0.8:
        return mutations.to_bytes([message] * rng.choice([0, 1, 3, 101])), modern
    return mutations.spoil(rng, message), modern


def faults(reply):
    """An internal error in a reply, in either form; there must be none."""
    for one in reply if isinstance(reply, list) else [reply]:
        if not isinstance(one, dict):
            yield f"not a JSON-RPC message: {one!r:.200}"
            continue
        error = one.get("error")
        if isinstance(error, dict) and error.get("code") == -32603:
            yield f"internal error: {error!r:.300}"
        result = one.get("result")
        if isinstance(result, dict) and result.get("isError"):
            text = "".join(part.get("text", "") for part in result.get("content", []))
            if '"INTERNAL"' in text or "internal error" in text.lower():
                yield f"internal tool error: {text[:300]}"
