"""Malformed MCP over HTTP: `python -m malformed.mcp_http HOST:PORT COUNT SEED`."""

import json

from . import mcp, raw_http
from .rest import framing
from .tally import Tally, arguments

NASTY_HEADERS = [
    ("Content-Type", ["", "text/plain", "application/json; charset=utf-16", "application/x-www-form-urlencoded"]),
    ("Accept", ["", "text/html", "text/event-stream", "application/json;q=0"]),
    ("MCP-Protocol-Version", ["", "1999-01-01", "2025-06-18", "\xff", "x" * 4000]),
    ("Mcp-Method", ["", "TOOLS/CALL", "tools/list", "\xff"]),
    ("Mcp-Name", ["", "nope", "Store_Context", "=?base64?zzz?="]),
    ("Mcp-Session-Id", ["x", "\xff", "x" * 4000]),
    ("Last-Event-ID", ["0", "\xff"]),
    ("Origin", ["null", "http://evil.example", "http://127.0.0.1:1", "\xff"]),
    ("Host", ["evil.example", "", "127.0.0.1.evil.example", "[::1"]),
    ("Authorization", ["Bearer", "Bearer " + "x" * 4000]),
    ("Content-Encoding", ["gzip"]),
    ("traceparent", ["00-zz"]),
]


def routed(rng, host, number):
    body, modern = mcp.malformed(rng, number)
    headers = {"Host": host, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if modern:
        headers["MCP-Protocol-Version"] = "2026-07-28"
        try:
            message = json.loads(body)
            headers["Mcp-Method"] = str(message["method"])[:4000]
            headers["Mcp-Name"] = str(message["params"]["name"])[:4000]
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        headers = {name: value.encode("ascii", "ignore").decode().replace("\n", "").replace("\r", "").replace("\x00", "") for name, value in headers.items()}
    else:
        headers["MCP-Protocol-Version"] = rng.choice(["2025-11-25", "2025-06-18", "2025-03-26"])
    if rng.random() < 0.2:
        for name, values in rng.sample(NASTY_HEADERS, rng.choice([1, 1, 2])):
            headers[name] = rng.choice(values)
    method, path = "POST", "/mcp"
    if rng.random() < 0.05:
        method = rng.choice(["GET", "DELETE", "PUT", "OPTIONS", "HEAD", "PATCH"])
        path = rng.choice(["/mcp", "/mcp/", "/mcp/x", "/", "/.well-known/oauth-protected-resource", "/mcp?x=%00"])
    headers["Content-Length"] = str(len(body))
    return method, raw_http.request(method, path, headers, body)


def messages(headers, body):
    """The JSON-RPC messages of a response, from JSON or from an event stream."""
    if not body:
        return []
    if headers.get("content-type", "").startswith("text/event-stream"):
        lines = [line[5:].strip() for line in body.decode().splitlines() if line.startswith("data:")]
        return [json.loads(line) for line in lines if line]
    if "json" in headers.get("content-type", ""):
        return [json.loads(body)]
    return []


def main():
    (host,), count, rng = arguments()
    tally = Tally("MCP over HTTP")
    connection = raw_http.Connection(host)
    for number in range(count):
        raw = rng.random() < 0.05
        method, request = ("POST", framing(rng, host).replace(b"/v1/contexts", b"/mcp")) if raw else routed(rng, host, number)
        try:
            answer = connection.exchange(request, method, half_close=raw)
        except TimeoutError:
            tally.complain("no answer and no end of connection", request)
            continue
        if answer is None:
            tally.count("closed")
            if not raw:
                tally.complain("the connection was closed without an answer", request)
            continue
        status, headers, body = answer
        tally.count(status)
        if status >= 500:
            tally.complain(f"status {status}: {body[:300]!r}", request)
            continue
        try:
            for message in messages(headers, body):
                for fault in mcp.faults(message):
                    tally.complain(fault, request)
        except ValueError:
            tally.complain(f"an answer that is no JSON: {body[:300]!r}", request)
    connection.close()
    good = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_statistics", "arguments": {}}}).encode()
    headers = {"Host": host, "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25", "Content-Length": len(good)}
    answer = connection.exchange(raw_http.request("POST", "/mcp", headers, good))
    if answer is None or answer[0] != 200 or b"total_entries" not in answer[2]:
        tally.complain(f"a good call afterwards: {answer}", good)
    tally.finish(count)


if __name__ == "__main__":
    main()
