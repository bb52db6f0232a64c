"""Malformed REST requests: `python -m malformed.rest HOST:PORT COUNT SEED`."""

import json
import re
import urllib.parse

from . import mutations, raw_http
from .operations import PLAIN_ROUTES, QUERY_ROUTES, ROUTES
from .tally import Tally, arguments

# Cursors: of the right length, with another alphabet or padding, cut, and no text at all.
NASTY_CURSORS = ["", "now", "NOW", "A" * 44, "_" * 44, "AQ" + "A" * 42, "A" * 43 + "=", "+/" * 22, "A" * 43, "x" * 5000, "\xff"]
NASTY_HEADERS = [
    ("Content-Type", ["", "text/plain", "application/json; charset=latin-1", "application/grpc", "application/json, text/xml", "x" * 300, "multipart/form-data"]),
    ("If-Match", ['"', '"x"', "1", "*", 'W/"1"', '"1", "2"', '"-1"', '"9999999999999999999999"', "\xff"]),
    ("Idempotency-Key", ["", " ", "x" * 5000, "\x01", "\xff\xfe", "a,b"]),
    ("Content-Encoding", ["gzip", "br", "deflate, gzip", "nonsense"]),
    ("Accept-Encoding", ["gzip;q=9", "\xff", "identity;q=0", "*;q=0"]),
    ("Accept", ["text/html", "*/*;q=x", "application/xml"]),
    ("Expect", ["100-continue", "200-ok"]),
    ("Authorization", ["Bearer", "Basic Og==", "Bearer " + "x" * 4000, "\x7f"]),
    ("Origin", ["null", "http://evil.example", "\xff"]),
    ("X-Request-Id", ["x" * 4000, "\x01\x02", "${jndi:ldap://x}"]),
    ("traceparent", ["00-zz-zz-01", "x" * 600]),
    ("Range", ["bytes=9-1", "bytes=a"]),
    ("Upgrade", ["websocket", "h2c"]),
    ("Last-Event-ID", NASTY_CURSORS),
    ("Host", ["", "a b", "evil.example", "[::1", "127.0.0.1:99999"]),
]
NASTY_PATH_PARTS = ["0", "-1", "1.5", "9" * 40, "1e3", "%00", "%ff", "%2e%2e", "..", "%zz", "%", "1%20", "a/b", "\xff\xfe", "x" * 9000, "", "1;x", "🙂".encode().decode("latin-1")]
NASTY_QUERIES = ["?ids=", "?ids=a", "?ids=1,,2", "?ids=" + ",".join(["1"] * 101), "?ids=%00", "?ids=1&ids=2", "?limit=0", "?limit=x", "?limit=-1", "?limit=99999999999999999999", "?offset=%ff", "?=", "?&&&", "?limit", "?surprise=1", "?" + "x" * 9000, "?include_images=maybe", "?min_revision=-1"]
METHODS = ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X" * 40]


def framing(rng, host):
    """Bytes that are not an HTTP request, or a request with a false length."""
    body = b'{"thread_id": "malformed", "source": "user", "text": "x"}'
    head = f"POST /v1/contexts HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n".encode()
    return rng.choice(
        [
            lambda: rng.randbytes(rng.choice([1, 20, 500])),
            lambda: b"\r\n" * 50,
            lambda: b"GET\r\n\r\n",
            lambda: b"GET / HTTP/9.9\r\n\r\n",
            lambda: b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
            lambda: b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 300 + b"\r\n",
            lambda: b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 600_000 + b"\r\n\r\n",
            lambda: b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\x01: y\r\n\r\n",
            lambda: b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
            lambda: head + b"Content-Length: 9999\r\n\r\n" + body,
            lambda: head + b"Content-Length: -1\r\n\r\n" + body,
            lambda: head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + body,
            lambda: head + b"Content-Length: 99999999999999999999\r\n\r\n",
            lambda: head + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
            lambda: head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body,
            lambda: head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + body,
            lambda: head + b"Transfer-Encoding: chunked\r\n\r\n39\r\n" + body[:20],
            lambda: head + b"Transfer-Encoding: gzip, nonsense\r\n\r\n" + body,
            lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(rng.choice([0, 9, 100])),
            lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(60),
        ]
    )()


def query_of(rng, parameters):
    """A query string made from damaged parameters. Objects and lists of objects are JSON."""
    if rng.random() < 0.2:
        parameters = {**parameters, "cursor": rng.choice(NASTY_CURSORS)}
    else:
        parameters = mutations.spoil_value(rng, parameters)
    pairs = []
    for name, value in parameters.items() if isinstance(parameters, dict) else [("x", parameters)]:
        for one in value if name == "tag" and isinstance(value, list) else [value]:
            text = one if isinstance(one, str) else json.dumps(one)
            pairs.append((name.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")))
    rng.shuffle(pairs)
    query = urllib.parse.urlencode(pairs * rng.choice([1, 1, 1, 1, 2, 40]))
    return query if rng.random() < 0.9 else query.replace("%", rng.choice(["", "%%", "%2"]), 1)


def routed(rng, host):
    """A well-framed request with invalid contents: `(method, bytes)`."""
    method, path, body = rng.choice(ROUTES)
    headers = {"Host": host, "Content-Type": "application/json"}
    kind = rng.random()
    if kind < 0.6:
        data = mutations.spoil(rng, body)
    elif kind < 0.75:
        data = mutations.to_bytes(body)
        for name, values in rng.sample(NASTY_HEADERS, rng.choice([1, 1, 2])):
            headers[name] = rng.choice(values)
    elif kind < 0.82:
        part = rng.choice(NASTY_PATH_PARTS)
        method, path, data = rng.choice([("GET", f"/v1/contexts/{part}", b""), ("DELETE", f"/v1/contexts/{part}", b""), ("PATCH", f"/v1/contexts/{part}", b'{"text": "x"}'), ("GET", f"/{part}", b"")])
    elif kind < 0.94:
        method, data = "GET", b""
        path, parameters = rng.choice(list(QUERY_ROUTES.items()))
        path += "?" + query_of(rng, parameters)
        if rng.random() < 0.2:
            headers["Last-Event-ID"] = rng.choice(NASTY_CURSORS)
    elif kind < 0.97:
        method, data = "GET", b""
        path = rng.choice(PLAIN_ROUTES).split("?")[0] + rng.choice(NASTY_QUERIES)
        if path.startswith("/v1/contexts/1"):
            path = path.replace("/1", "", 1)
    else:
        method, data = rng.choice(METHODS), b""
    headers["Content-Length"] = str(len(data))
    return method, raw_http.request(method, path, headers, data)


def main():
    (host,), count, rng = arguments()
    tally = Tally("REST")
    connection = raw_http.Connection(host)
    for _ in range(count):
        raw = rng.random() < 0.1
        method, request = ("POST", framing(rng, host)) if raw else routed(rng, host)
        try:
            # After a false length the server waits; the end of input releases it.
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
        elif status >= 400 and not raw and method != "HEAD" and body and "problem+json" not in headers.get("content-type", ""):
            # The HTTP layer itself refuses without a body.
            tally.complain(f"status {status} without problem+json: {headers.get('content-type')} {body[:200]!r}", request)
        elif status >= 400 and body and re.search(rb"(?i)sqlite|select .* from|/rustc/|\.rs:\d", body):
            tally.complain(f"status {status} shows internals: {body[:300]!r}", request)
    body = json.dumps({"thread_id": "after the storm", "source": "user", "text": "still here"}).encode()
    good = raw_http.request("POST", "/v1/contexts", {"Host": host, "Content-Type": "application/json", "Content-Length": len(body)}, body)
    connection.close()
    answer = connection.exchange(good)
    if answer is None or answer[0] != 201:
        tally.complain(f"a good request afterwards: {answer}", good)
    tally.finish(count)


if __name__ == "__main__":
    main()
