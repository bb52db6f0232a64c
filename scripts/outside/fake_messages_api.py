"""A Messages API on the loopback interface that plays a scripted model.

Claude Code talks to it instead of the real API, so that a whole session runs
offline and in the same way each time. The script names a tool, Claude Code calls
it, and the script gets exactly the result that a model would get.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_REPEATS = 10


class Script:
    """The scripted model: a generator that yields `(tool, arguments)` and is
    sent each result as `(text, is_error)`. The session ends when it returns."""

    def __init__(self, turns):
        self._turns = turns
        self._lock = threading.Lock()
        self._calls = 0
        self._repeats = 0
        self._pending = None
        # What the model says when the script is over.
        self.farewell = "The session is over."
        self.failure = None
        self.finished = False

    def next_content(self, request):
        """The content block of the model's response to `request`."""
        with self._lock:
            try:
                result = self._result_of(request)
                if self._pending is not None and result is None:
                    # A retry of the same turn. Many retries are a loop.
                    self._repeats += 1
                    assert self._repeats < MAX_REPEATS, f"no result came for {self._pending['name']}"
                    return self._pending
                self._repeats = 0
                tool, arguments = self._turns.send(result)
            except StopIteration:
                self.finished = True
                self._pending = None
                return {"type": "text", "text": self.farewell}
            except Exception as error:
                # A KeyError too: it ends the generator, so after a retry the script would count as finished.
                self.failure = f"{type(error).__name__}: {error}"
                return {"type": "text", "text": f"Stopped: {self.failure}"}
            self._calls += 1
            self._pending = {
                "type": "tool_use",
                "id": f"toolu_{self._calls:04}",
                "name": tool,
                "input": arguments,
            }
            return self._pending

    def _result_of(self, request):
        if self._pending is None:
            return None
        # Search all messages: Claude Code adds its own reminders after the
        # results.
        for message in reversed(request["messages"]):
            blocks = message["content"] if isinstance(message["content"], list) else []
            for block in blocks:
                if block.get("tool_use_id") == self._pending["id"]:
                    content = block.get("content", "")
                    if not isinstance(content, str):
                        content = "".join(part.get("text", "") for part in content)
                    return content, bool(block.get("is_error"))
        return None


def events(model, block):
    """The server-sent events of a response with one content block."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    if block["type"] == "tool_use":
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        start = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    yield {"type": "content_block_start", "index": 0, "content_block": start}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def serve(script, log):
    """Starts the API on a free loopback port and returns the server. Writes the
    path and the body of each POST request to the `log` file, as one line."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def _reply(self, status, kind, body):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self):
            self._reply(200, "text/plain", b"")

        def do_GET(self):
            self._reply(404, "application/json", b'{"type": "error", "error": {"type": "not_found_error", "message": "no"}}')

        def do_POST(self):
            length = min(int(self.headers.get("content-length", 0)), MAX_BODY_BYTES)
            body = json.loads(self.rfile.read(length) or b"{}")
            log.write(json.dumps({"path": self.path, "body": body}) + "\n")
            log.flush()
            path = self.path.split("?")[0]
            if path == "/v1/messages/count_tokens":
                self._reply(200, "application/json", b'{"input_tokens": 1}')
            elif path != "/v1/messages":
                self._reply(200, "application/json", b"{}")
            else:
                # Titles and other side requests come without tools.
                if body.get("tools"):
                    block = script.next_content(body)
                else:
                    block = {"type": "text", "text": "scripted"}
                model = body.get("model", "scripted")
                if body.get("stream"):
                    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(model, block))
                    self._reply(200, "text/event-stream", "".join(lines).encode())
                else:
                    first, *_ = events(model, block)
                    whole = {**first["message"], "content": [block]}
                    whole["stop_reason"] = "tool_use" if block["type"] == "tool_use" else "end_turn"
                    self._reply(200, "application/json", json.dumps(whole).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
