"""Malformed MCP over stdio: `python -m malformed.mcp_stdio GATEWAY LOG COUNT SEED`.

Writes lines to one `GATEWAY stdio` process. After every hundred lines a valid
request must get a response. At the end of input the process must end. Its stderr
goes to the LOG file.
"""

import contextlib
import json
import queue
import subprocess
import threading

from . import mcp
from .operations import TOOLS
from .tally import Tally, arguments

TIMEOUT_S = 60
PROBE_EVERY = 100


def reader(stream, lines):
    for line in stream:
        lines.put(line)
    lines.put(None)


@contextlib.contextmanager
def in_time(process):
    """Kills the gateway if the block, which writes to it, takes too long: a gateway that reads nothing blocks the
    writer. The write then fails."""
    killing = threading.Timer(TIMEOUT_S, process.kill)
    killing.daemon = True
    killing.start()
    try:
        yield
    finally:
        killing.cancel()


def probe(process, lines, tally, number, method="tools/list", params=None):
    """Sends a valid request and reads responses until its own."""
    request_id = f"probe-{number}"
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
    with in_time(process):
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    while True:
        try:
            line = lines.get(timeout=TIMEOUT_S)
        except queue.Empty:
            tally.complain(f"no answer within {TIMEOUT_S} s", request)
            return None
        if line is None:
            tally.complain("the gateway ended", request)
            return None
        try:
            message = json.loads(line)
        except ValueError:
            tally.complain(f"a line on stdout that is no JSON: {line[:300]!r}", request)
            continue
        for fault in mcp.faults(message):
            tally.complain(fault, line[:300])
        if isinstance(message, dict) and message.get("id") == request_id:
            return message
        tally.count("error" if isinstance(message, dict) and "error" in message else "result")


def main():
    (gateway, log_path), count, rng = arguments()
    tally = Tally("MCP over stdio")
    with open(log_path, "wb") as log:
        process = subprocess.Popen([gateway, "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        lines = queue.Queue()
        threading.Thread(target=reader, args=(process.stdout, lines), daemon=True).start()
        # Only the second revision has batches.
        hello = {"protocolVersion": rng.choice(["2025-11-25", "2025-03-26"]), "capabilities": {}, "clientInfo": {"name": "malformed", "version": "1"}}
        alive = probe(process, lines, tally, "hello", "initialize", hello) is not None
        sent = 0
        try:
            process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
            listed = probe(process, lines, tally, "list") if alive else None
            names = {tool["name"] for tool in (listed or {}).get("result", {}).get("tools", [])}
            if names != TOOLS.keys():
                tally.complain(f"operations.py does not have the tools that are listed: {sorted(names ^ TOOLS.keys())}", "tools/list")
            while alive and sent < count:
                body, _ = mcp.malformed(rng, sent)
                # One message is one line. The mutation decides its contents.
                line = body.replace(b"\n", rng.choice([b" ", b"\r"])) + rng.choice([b"\n", b"\n", b"\n", b"\r\n", b"\n\n"])
                with in_time(process):
                    process.stdin.write(line)
                sent += 1
                if sent % PROBE_EVERY == 0:
                    alive = probe(process, lines, tally, sent) is not None
            if alive:
                reply = probe(process, lines, tally, "end", "tools/call", {"name": "get_statistics", "arguments": {}})
                if reply is None or "total_entries" not in json.dumps(reply):
                    tally.complain(f"a good call afterwards: {reply!r:.300}", "get_statistics")
            with in_time(process):
                process.stdin.close()
        except BrokenPipeError:
            tally.complain("the gateway closed its input", sent)
        try:
            status = process.wait(timeout=10)
            if status != 0:
                tally.complain(f"exit status {status} at the end of input", "end of input")
        except subprocess.TimeoutExpired:
            tally.complain("still running 10 s after the end of input", "end of input")
            process.kill()
    tally.finish(sent)


if __name__ == "__main__":
    main()
