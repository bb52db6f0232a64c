"""Keeps a copy of all context entries in a SQLite file: a snapshot first, then each
change. Entries and cursor are committed together, so it can be stopped at any time.

    clients/python/generate python3 stubs
    PYTHONPATH=stubs python3 clients/python/follow.py copy.db [127.0.0.1:7420 or https://host:port]
"""

import json
import os
import sqlite3
import sys
import time

import errors
import grpc
import values
from channel import open_channel
from context.v1 import change_service_pb2 as pb, change_service_pb2_grpc

# An entry can exceed gRPC's default limit of 4 MiB. The pings detect a lost connection 30 s after its last frame. gRPC
# does not apply its keepalive timeout (grpc/grpc#39239): a ping waits 60 s for its response by default.
OPTIONS = (("grpc.max_receive_message_length", 16 << 20), ("grpc.keepalive_time_ms", 15_000), ("grpc.http2.ping_timeout_ms", 15_000))
REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def follow(changes, copy, credentials):
    """Applies one stream to the copy. Returns the reason that its last frame gives."""
    (cursor,) = copy.execute("SELECT max(cursor) FROM position").fetchone()
    if cursor is None:
        copy.execute("DELETE FROM entries")  # Committed with the snapshot.
    request = pb.WatchRequest(cursor=cursor, snapshot=cursor is None, entity="context", include_body=True)
    for frame in changes.Watch(request, metadata=credentials):
        content = getattr(frame, kind := frame.WhichOneof("frame"))
        if kind in ("resync", "end"):
            return content.reason
        if kind in ("entry", "change") and content.HasField("context"):
            entry = content.context
            row = (entry.id, entry.version, entry.text_content, json.dumps(list(entry.tags)), json.dumps(values.from_object(entry.metadata)))
            copy.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", row)
        elif kind in ("change", "left"):
            copy.execute("DELETE FROM entries WHERE id = ?", (int(content.id),))
        if frame.cursor:
            copy.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", (frame.cursor,))
            copy.commit()


copy = sqlite3.connect(sys.argv[1])
copy.executescript("""PRAGMA journal_mode = wal; CREATE TABLE IF NOT EXISTS position (id INTEGER PRIMARY KEY, cursor);
    CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, version, text, tags, metadata);""")
key = os.environ.get("CONTEXT_API_KEY")
with open_channel(sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:7420", OPTIONS) as channel:
    while True:
        try:
            reason = follow(change_service_pb2_grpc.ChangeServiceStub(channel), copy, (("authorization", f"Bearer {key}"),) if key else ())
        except grpc.RpcError as error:
            reason = errors.reason(error)
            if error.code() in REFUSED:
                raise
        copy.rollback()  # Changes after the last cursor are sent again.
        if reason in ("RESYNC_REQUIRED", "CURSOR_COMPACTED"):
            copy.execute("DELETE FROM position")
        time.sleep(1)
