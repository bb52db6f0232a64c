"""An embedding provider and a model hub behind TLS, with an authority of their own."""

import hashlib
import http.server
import json
import math
import os
import pathlib
import re
import ssl
import subprocess
import threading

from image import dockerfile

HOST, PORT = "models.test", 8443
KEY = "the-key-of-the-provider"

# The image has openssl, because ca-certificates needs it.
AUTHORITY = f"""set -e
key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
openssl req -x509 $key -keyout ca.key -out own-ca.pem -subj '/CN=Authority of the image test' -days 2
openssl req $key -keyout server.key -out server.csr -subj /CN={HOST}
echo subjectAltName=DNS:{HOST} > server.ext
openssl x509 -req -in server.csr -CA own-ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem
"""


def authority(image):
    """The directory with own-ca.pem and the server's certificate and key."""
    directory = pathlib.Path(image.root, "root/tls")
    directory.mkdir()
    run = dockerfile.start(
        image.root, ["sh", "-c", AUTHORITY], env=image.env, user="root", directory="/root/tls",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 0, output
    return directory


def embedding(text, dimensions=64):
    """Similar for texts with common words."""
    vector = [0.01] * dimensions
    for word in re.findall(r"\w+", text.lower()):
        vector[hashlib.sha256(word.encode()).digest()[0] % dimensions] += 1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = pathlib.Path(os.environ.get("MODEL", "/nonexistent"))

    def reply(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/embeddings" or self.headers["authorization"] != f"Bearer {KEY}":
            return self.reply(401, b"{}")
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        dimensions = request.get("dimensions", 64)
        data = [{"index": at, "embedding": embedding(text, dimensions)} for at, text in enumerate(texts)]
        self.reply(200, json.dumps({"model": request["model"], "data": data}).encode())

    def do_GET(self):
        prefix = "/sentence-transformers/all-MiniLM-L6-v2/resolve/main/"
        file = self.model / self.path.removeprefix(prefix)
        if not self.path.startswith(prefix) or "/" in self.path.removeprefix(prefix) or not file.is_file():
            return self.reply(404, b"{}")
        self.reply(200, file.read_bytes(), "application/octet-stream")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that does not trust the certificate hangs up."""


def serve(directory):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    server = Server(("127.0.0.1", PORT), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
