"""HTTP/1.1 over a plain socket, so that no library corrects the request."""

import socket

TIMEOUT_S = 30
STREAM_TIMEOUT_S = 1


class Connection:
    """One connection. It is opened again when the server closed it."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.stream = None
        self.file = None

    def open(self):
        self.close()
        self.stream = socket.create_connection(self.address, TIMEOUT_S)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.stream.makefile("rb")

    def close(self):
        if self.stream is not None:
            self.file.close()
            self.stream.close()
            self.stream = None

    def exchange(self, request, method="POST", half_close=False):
        """Sends bytes and reads one response: `(status, headers, body)`, or `None`
        when the server closed the connection without one. Raises `TimeoutError`
        when it neither responds nor closes."""
        for attempt in (1, 2):
            fresh = self.stream is None
            if fresh:
                self.open()
            try:
                try:
                    self.stream.sendall(request)
                    if half_close:
                        self.stream.shutdown(socket.SHUT_WR)
                except OSError:
                    # The server may have refused early; its response may be readable.
                    pass
                answer = self._read(method)
            except TimeoutError:
                self.close()
                raise
            except (OSError, ValueError):
                answer = None
            if answer is None:
                self.close()
                # The previous response may have closed the connection.
                if not fresh and attempt == 1:
                    continue
                return None
            if half_close or answer[1].get("connection", "").lower() == "close":
                self.close()
            return answer
        return None

    def _read(self, method):
        while True:
            line = self.file.readline(65_536)
            if not line:
                return None
            version, status, *_ = line.split(maxsplit=2)
            if not version.startswith(b"HTTP/1."):
                # HTTP/2 frames: the caller sent a preface.
                return None
            status = int(status)
            headers = {}
            while (line := self.file.readline(65_536)) not in (b"\r\n", b"\n", b""):
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            if status >= 200:
                break
        if method == "HEAD" or status in (204, 304):
            return status, headers, b""
        if headers.get("content-type", "").startswith("text/event-stream"):
            headers["connection"] = "close"
            return status, headers, self._first_events()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while (size := int(self.file.readline(65_536).split(b";")[0], 16)) > 0:
                body += self.file.read(size)
                self.file.readline()
            self.file.readline()
        elif "content-length" in headers:
            body = self.file.read(int(headers["content-length"]))
        else:
            body = self.file.read()
            headers["connection"] = "close"
        return status, headers, body

    def _first_events(self):
        """The first events of a stream; a subscription never ends."""
        data = b""
        self.stream.settimeout(STREAM_TIMEOUT_S)
        try:
            while received := self.file.read1(65_536):
                data += received
                if b"\n\n" in data.replace(b"\r", b""):
                    break
        except TimeoutError:
            pass
        # Chunk sizes are on separate lines, which the caller skips.
        return data


def request(method, path, headers, body):
    """The bytes of a request, without validation or escaping."""
    lines = [f"{method} {path} HTTP/1.1"] + [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body
