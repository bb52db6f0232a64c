"""OpenAI's Responses API and the Gemini API on the loopback interface, with a model
that gives the same answer to everything and calls no tool.

Codex and Gemini CLI talk to it instead of the real APIs, so that a session runs
offline. A request for anything else is answered with 404, and logged as well.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 64 * 1024 * 1024


def response_events(answer):
    """The server-sent events of a response of the Responses API."""
    message = {
        "type": "message",
        "id": "msg_scripted",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": answer, "annotations": []}],
    }
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    response = {"id": "resp_scripted", "object": "response", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response}
    yield {"type": "response.output_item.done", "output_index": 0, "item": message}
    yield {"type": "response.completed", "response": {**response, "status": "completed", "output": [message], "usage": usage}}


def generated(answer):
    """A whole response of the Gemini API."""
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": answer}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "scripted",
    }


def serve(answer, log):
    """Starts the APIs on a free loopback port and returns the server. Writes the
    path and the body of each request to the `log` file, as one line."""

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

        def _json(self, status, value):
            self._reply(status, "application/json", json.dumps(value).encode())

        def _events(self, events):
            named = (f"event: {event['type']}\n" if "type" in event else "" for event in events)
            lines = (f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(named, events))
            self._reply(200, "text/event-stream", "".join(lines).encode())

        def _record(self, body):
            log.write(json.dumps({"path": self.path, "body": body}) + "\n")
            log.flush()

        def do_GET(self):
            self._record(None)
            self._json(404, {"error": {"code": 404, "message": "no"}})

        def do_POST(self):
            length = min(int(self.headers.get("content-length", 0)), MAX_BODY_BYTES)
            self._record(json.loads(self.rfile.read(length) or b"{}"))
            path = self.path.split("?")[0]
            if path.endswith("/responses"):
                self._events(list(response_events(answer)))
            elif path.endswith(":streamGenerateContent"):
                self._events([generated(answer)])
            elif path.endswith(":generateContent"):
                self._json(200, generated(answer))
            elif path.endswith(":countTokens"):
                self._json(200, {"totalTokens": 1})
            else:
                self._json(404, {"error": {"code": 404, "message": "no"}})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
