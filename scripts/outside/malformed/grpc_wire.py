"""Malformed gRPC calls: `python -m malformed.grpc_wire HOST:PORT STUBS COUNT SEED`.

STUBS is the directory with the modules that grpcio-tools generated from
proto/. The calls are written frame by frame with the h2 package, because a
real gRPC client refuses to send most of them.
"""

import gzip
import importlib
import pathlib
import socket
import struct
import sys

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from . import mutations
from .tally import Tally, arguments

TIMEOUT_S = 30
# The method that sends a stream of messages.
WATCH = "/context.v1.ChangeService/Watch"
# Status codes that mean a fault of the server.
SERVER_FAULTS = {"2": "UNKNOWN", "13": "INTERNAL", "15": "DATA_LOSS"}
NASTY_HEADERS = [
    ("content-type", ["application/json", "application/grpc+json", "application/grpc-web", "application/grpc-web-text", "text/plain", "", "application/grpc; charset=x"]),
    ("grpc-timeout", ["", "1", "-1S", "99999999999H", "0n", "1x", "5 S", "\x7f"]),
    ("grpc-encoding", ["gzip", "snappy", "", "identity, gzip"]),
    ("grpc-accept-encoding", ["", "nonsense", ",,,"]),
    ("te", ["", "gzip"]),
    ("authorization", ["Bearer", "Basic ===", "x" * 4000]),
    ("idempotency-key", ["", "x" * 5000, "\t"]),
    ("trace-bin", ["!!!", "AAA", "x" * 3000]),
    ("traceparent", ["00-zz-zz-01"]),
    ("x-request-id", ["x" * 3000]),
]
NASTY_STRINGS = [value for value in mutations.NASTY if isinstance(value, str) and not any(0xD800 <= ord(c) < 0xE000 for c in value)]
NASTY_INTEGERS = [0, 1, -1, 2**31 - 1, -(2**31), 2**53, 2**63 - 1, -(2**63)]
NASTY_DOUBLES = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324]


def load_methods(stubs):
    """Path and request class of every method of our services."""
    from google.protobuf import message_factory

    sys.path.insert(0, stubs)
    methods = []
    for module in sorted(pathlib.Path(stubs).glob("context/v1/*_pb2.py")):
        name = ".".join(module.relative_to(stubs).with_suffix("").parts)
        for service in importlib.import_module(name).DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                methods.append((f"/{service.full_name}/{method.name}", message_factory.GetMessageClass(method.input_type)))
    assert methods, f"no services among the stubs in {stubs}"
    return methods


def fill(rng, message, depth=0):
    """Fills a message with values of the right types that make no sense together."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.35:
            continue
        repeated = field.is_repeated
        kind = field.cpp_type
        if kind == field.CPPTYPE_MESSAGE:
            if depth > 6:
                continue
            if repeated and field.message_type.GetOptions().map_entry:
                for key in rng.sample(NASTY_STRINGS, rng.choice([0, 1, 3])):
                    fill(rng, getattr(message, field.name)[key], depth + 1)
            elif repeated:
                for _ in range(rng.choice([0, 1, 2, 2, 120 if depth == 0 else 3])):
                    fill(rng, getattr(message, field.name).add(), depth + 2)
            else:
                inner = getattr(message, field.name)
                inner.SetInParent()
                fill(rng, inner, depth + 1)
            continue
        if kind == field.CPPTYPE_STRING:
            choices = NASTY_STRINGS if field.type == field.TYPE_STRING else [b"", b"\x00", rng.randbytes(300)]
            make = lambda: rng.choice(choices)
        elif kind == field.CPPTYPE_BOOL:
            make = lambda: rng.random() < 0.5
        elif kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
            make = lambda: rng.choice(NASTY_DOUBLES)
        elif kind == field.CPPTYPE_ENUM:
            make = lambda: rng.choice([0, 1, 2, 99, -1])
        else:
            bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
            signed = kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            fitting = [value for value in NASTY_INTEGERS if low <= value <= high]
            if field.name == "min_revision":
                # A future revision is refused, so nothing would be read.
                fitting = [value for value in fitting if value <= 0]
            make = lambda: rng.choice(fitting)
        if repeated:
            getattr(message, field.name).extend(make() for _ in range(rng.choice([0, 1, 3, 1200 if depth == 0 else 3])))
        else:
            setattr(message, field.name, make())
    return message


def nested(depth):
    """A message nested in itself `depth` times, against the schema."""
    data = b""
    for _ in range(depth):
        data = b"\x0a" + varint(len(data)) + data
        if len(data) > 60_000:
            break
    return data


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def frame(data, flag=0, length=None):
    return struct.pack(">BI", flag, len(data) if length is None else length) + data


class Channel:
    """One HTTP/2 connection that makes one call after the other."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.stream = None

    def open(self):
        self.stream = socket.create_connection(self.address, TIMEOUT_S)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Outgoing frames are not validated, because they must be malformed.
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False)
        )
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**24})
        self.h2.increment_flow_control_window(2**30)
        self.stream.sendall(self.h2.data_to_send())

    def close(self):
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def call(self, headers, data, end="stream"):
        """Makes one call and returns the response's headers and trailers as one
        dictionary, with `reset` (the error code) if the server reset the stream.
        `None`: the server closed the connection without a response. `end` says
        how the call ends: `stream` (properly), `reset`, or `none` (the
        connection closes). After the last two the result is
        `{"abandoned": True}`."""
        if self.stream is None:
            self.open()
        answer = {}
        try:
            stream_id = self.h2.get_next_available_stream_id()
            self.h2.send_headers(stream_id, headers, end_stream=not data and end == "stream")
            self._send_body(stream_id, data, end, answer)
            if end == "reset":
                self.h2.reset_stream(stream_id)
                self.stream.sendall(self.h2.data_to_send())
                return {"abandoned": True}
            if end == "none":
                self.stream.sendall(self.h2.data_to_send())
                self.close()
                return {"abandoned": True}
            is_stream = (":path", WATCH) in headers
            while not answer.get("done"):
                if is_stream and "message" in answer:
                    # It does not end.
                    self.h2.reset_stream(stream_id, h2.errors.ErrorCodes.CANCEL)
                    self.stream.sendall(self.h2.data_to_send())
                    return answer
                if not self._receive(stream_id, answer):
                    self.close()
                    return answer if answer else None
            if stream_id > 2**20:
                self.close()
            return answer
        except TimeoutError:
            self.close()
            raise
        except (OSError, h2.exceptions.ProtocolError):
            self.close()
            return answer if answer else None

    def _send_body(self, stream_id, data, end, answer):
        while data and not answer.get("done"):
            size = min(len(data), self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)
            if size > 0:
                chunk, data = data[:size], data[size:]
                self.h2.send_data(stream_id, chunk, end_stream=not data and end == "stream")
                self.stream.sendall(self.h2.data_to_send())
            elif not self._receive(stream_id, answer):
                raise ConnectionError("closed")
        if not answer.get("done"):
            self.stream.sendall(self.h2.data_to_send())

    def _receive(self, stream_id, answer):
        received = self.stream.recv(65_536)
        if not received:
            return False
        for event in self.h2.receive_data(received):
            if isinstance(event, h2.events.ConnectionTerminated):
                return False
            if isinstance(event, h2.events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if event.stream_id == stream_id:
                    answer["message"] = True
            if getattr(event, "stream_id", None) != stream_id:
                continue
            if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                answer.update({_text(name): _text(value) for name, value in event.headers})
            elif isinstance(event, h2.events.StreamReset):
                answer.update({"reset": event.error_code, "done": True})
            elif isinstance(event, h2.events.StreamEnded):
                answer["done"] = True
        self.stream.sendall(self.h2.data_to_send())
        return True


def _text(value):
    return value if isinstance(value, str) else value.decode("latin-1")


def malformed(rng, address, methods):
    """One malformed call: `(headers, body, end)`."""
    path, request = rng.choice(methods)
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":authority": address,
        ":path": path,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    end = "stream"
    kind = rng.random()
    if kind < 0.45:
        body = frame(fill(rng, request()).SerializeToString())
    elif kind < 0.6:
        good = fill(rng, request()).SerializeToString()
        data = rng.choice(
            [
                lambda: rng.randbytes(rng.choice([1, 5, 50, 2000])),
                lambda: good[: rng.randrange(len(good) + 1)],
                lambda: good + rng.randbytes(3),
                lambda: bytes(b ^ (rng.random() < 0.02) * 0x80 for b in good),
                lambda: b"\x0a\xff\xff\xff\xff\x0f",
                lambda: b"\xff" * 11,
                lambda: b"\x0a\x02\xff\xfe",
                lambda: nested(rng.choice([50, 101, 5000])),
            ]
        )()
        body = frame(data)
    elif kind < 0.75:
        good = fill(rng, request()).SerializeToString()
        body = rng.choice(
            [
                lambda: b"",
                lambda: good[:3],
                lambda: frame(good, length=len(good) + 10),
                lambda: frame(good, length=2**32 - 1),
                lambda: frame(good, length=max(len(good) - 1, 0)),
                lambda: frame(good) + frame(good),
                lambda: frame(good, flag=1),
                lambda: frame(gzip.compress(good), flag=1),
                lambda: frame(good, flag=rng.randrange(2, 256)),
                lambda: rng.randbytes(rng.choice([1, 5, 40, 9000])),
            ]
        )()
    elif kind < 0.9:
        body = frame(fill(rng, request()).SerializeToString())
        for name, values in rng.sample(NASTY_HEADERS, rng.choice([1, 1, 2])):
            headers[name] = rng.choice(values)
    elif kind < 0.96:
        body = frame(b"")
        headers[":path"] = rng.choice([path + "X", path.lower(), "/", "//", path + "/", "/context.v1.ContextService", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Nope", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/" + "x" * 5000])
        headers[":method"] = rng.choice(["POST", "POST", "GET", "PUT", "DELETE"])
    else:
        body = frame(fill(rng, request()).SerializeToString())
        end = rng.choice(["reset", "none"])
        if end == "none":
            body = body[: rng.randrange(len(body) + 1)]
    return list(headers.items()), body, end


def garbage(rng, address):
    """Malformed bytes on the HTTP/2 layer. The connection must end; the response
    does not matter."""
    host, port = address.rsplit(":", 1)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    data = rng.choice(
        [
            lambda: preface + rng.randbytes(rng.choice([9, 50, 3000])),
            lambda: preface + settings + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
            # HEADERS on an even stream, DATA on an idle one, a WINDOW_UPDATE of
            # zero, and a header block that never ends.
            lambda: preface + settings + b"\x00\x00\x01\x01\x05\x00\x00\x00\x02\x82",
            lambda: preface + settings + b"\x00\x00\x04\x00\x01\x00\x00\x00\x01abcd",
            lambda: preface + settings + b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            lambda: preface + settings + b"\x00\x00\x05\x01\x00\x00\x00\x00\x01" + rng.randbytes(5) + b"\x00\x40\x00\x09\x00\x00\x00\x00\x01" + bytes(16384),
            lambda: preface + settings * 3000,
            lambda: preface + settings + b"\x00\x00\x08\x06\x00\x00\x00\x00\x00pingpong" * 2000,
        ]
    )()
    with socket.create_connection((host, int(port)), TIMEOUT_S) as stream:
        try:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            while stream.recv(65_536):
                pass
        except TimeoutError:
            return "no end", data
        except OSError:
            pass
    return "closed", data


def service_responds(address):
    """Whether a valid call succeeds."""
    import grpc

    grpc_module = importlib.import_module("context.v1.context_service_pb2_grpc")
    messages = importlib.import_module("context.v1.context_service_pb2")
    with grpc.insecure_channel(address) as channel:
        try:
            grpc_module.ContextServiceStub(channel).GetStatistics(messages.GetStatisticsRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError:
            return False
    return True


def main():
    (address, stubs), count, rng = arguments()
    methods = load_methods(stubs)
    tally = Tally("gRPC")
    channel = Channel(address)
    for number in range(count):
        if rng.random() < 0.03:
            outcome, data = garbage(rng, address)
            tally.count(f"frames {outcome}")
            if outcome != "closed":
                tally.complain("the connection did not end", data)
            continue
        headers, body, end = malformed(rng, address, methods)
        try:
            answer = channel.call(headers, body, end)
        except TimeoutError:
            tally.complain("no answer", (headers, body))
            continue
        if answer is None:
            tally.count("closed")
            continue
        if "abandoned" in answer:
            tally.count("abandoned")
            continue
        code = answer.get("grpc-status")
        status = answer.get(":status")
        tally.count(f"code {code}" if code is not None else f"reset {answer['reset']}" if "reset" in answer else f"HTTP {status}")
        if code in SERVER_FAULTS:
            tally.complain(f"{SERVER_FAULTS[code]}: {answer.get('grpc-message')}", (headers, body))
        elif status is not None and status.startswith("5"):
            tally.complain(f"HTTP {status}", (headers, body))
        elif "reset" in answer and int(answer["reset"]) == 2:
            tally.complain("the stream was reset with INTERNAL_ERROR", (headers, body))
    if not service_responds(address):
        tally.complain("a good call afterwards had no answer", "GetStatistics")
    tally.finish(count)


if __name__ == "__main__":
    main()
