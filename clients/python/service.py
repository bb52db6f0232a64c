"""The connection that the adapters of agent frameworks share."""

import asyncio
import json
import os
import uuid

from channel import open_channel
from context.v1 import artifact_service_pb2_grpc, context_service_pb2_grpc

TIMEOUT_S = 30
RETRY_POLICY = {
    "maxAttempts": 5,
    "initialBackoff": "0.2s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
}
OPTIONS = (
    # A page of entries can exceed gRPC's default of 4 MiB.
    ("grpc.max_receive_message_length", 128 << 20),
    # By default gRPC connects again after 1 s at the earliest, and calls fail meanwhile: a restart of the service would
    # use up their attempts.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": RETRY_POLICY}]})),
)


class Service:
    """A context service, with the API key `key` or that of CONTEXT_API_KEY. Python threads can share it.

    With an address that begins with `https://` the connection uses TLS. `root_certificates` are the authorities to
    trust, as PEM bytes, if they are not those that gRPC contains.
    """

    def __init__(self, address="127.0.0.1:7420", key=None, *, root_certificates=None):
        key = key or os.environ.get("CONTEXT_API_KEY")
        self._credentials = (("authorization", f"Bearer {key}"),) if key else ()
        self._channel = open_channel(address, OPTIONS, root_certificates=root_certificates)
        self.contexts = context_service_pb2_grpc.ContextServiceStub(self._channel)
        self.artifacts = artifact_service_pb2_grpc.ArtifactServiceStub(self._channel)

    def read(self, method, request):
        """The reply of a call that changes nothing."""
        return method(request, timeout=TIMEOUT_S, metadata=self._credentials)

    def write(self, method, request):
        """The reply of a call that changes something. A retry does not repeat the change."""
        once = (("idempotency-key", uuid.uuid4().hex),)
        return method(request, timeout=TIMEOUT_S, metadata=self._credentials + once)

    def close(self):
        self._channel.close()


async def finished(function, *arguments):
    """Runs a blocking function in a thread and returns its result. A caller that is cancelled still waits for the
    function, so that no write is in flight afterwards."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                pass  # Cancelled again: still wait.
        raise
