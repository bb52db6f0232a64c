"""Stores, finds, changes and deletes entries through the generated client, follows
their changes, and reads the errors of invalid calls.

    clients/python/generate python3 stubs
    PYTHONPATH=stubs python3 clients/python/walk.py [127.0.0.1:7420 or https://host:port]
"""

import contextlib
import os
import sys

import errors
import grpc
import values
from channel import open_channel
from context.v1 import change_service_pb2, change_service_pb2_grpc, context_pb2, context_service_pb2 as pb, context_service_pb2_grpc, value_pb2

TIMEOUT_S = 30


@contextlib.contextmanager
def refused(code, reason):
    """The block must fail with this gRPC code and reason. Yields a list, which then has the error."""
    caught = []
    try:
        yield caught
    except grpc.RpcError as error:
        assert error.code() == code, f"{error.code()}: {error.details()}"
        assert errors.reason(error) == reason, f"{errors.reason(error)}: {error.details()}"
        caught.append(error)
    else:
        raise AssertionError(f"expected {code.name} {reason}")


def walk(contexts):
    thread = f"python-{os.getpid()}"
    only_thread = context_pb2.Filter(thread_id=thread)

    # Store. Tags are normalised, integers beyond 2^53 stay exact, images are bytes.
    metadata = {"status": "active", "attempts": 2**62, "ratio": 0.5, "nested": {"list": [1, None, True, "x"]}}
    image = context_pb2.Image(data=b"\x89PNG\r\n", mime_type="image/png")
    stored = contexts.StoreContext(
        pb.StoreContextRequest(
            thread_id=thread,
            source="agent",
            text="The queue is drained before the socket closes.",
            tags=value_pb2.StringList(values=[" Queue ", "queue", "Shutdown"]),
            metadata=values.to_object(metadata),
            images=context_pb2.ImageList(images=[image]),
        ),
        timeout=TIMEOUT_S,
    )
    assert stored.success and stored.context_id > 0 and stored.version == 1, stored
    context_id = stored.context_id

    # Get.
    (entry,) = contexts.GetContextByIds(pb.GetContextByIdsRequest(context_ids=[context_id, 2**53 - 1]), timeout=TIMEOUT_S).contexts
    assert entry.text_content == "The queue is drained before the socket closes."
    assert list(entry.tags) == ["queue", "shutdown"], entry.tags
    assert values.from_object(entry.metadata) == metadata, entry.metadata
    assert entry.content_type == "multimodal" and entry.images.images[0].data == b"\x89PNG\r\n", entry.images
    assert entry.created_at == entry.updated_at

    # Search by metadata and full text.
    narrowed = context_pb2.Filter(
        thread_id=thread,
        metadata_filters=[context_pb2.MetadataFilter(key="attempts", operator="eq", value=values.to_value(2**62))],
    )
    found = contexts.SearchContext(pb.SearchContextRequest(filter=narrowed), timeout=TIMEOUT_S)
    assert [hit.id for hit in found.results] == [context_id], found
    words = contexts.FtsSearchContext(pb.FtsSearchContextRequest(query="draining queues", filter=only_thread, highlight=True), timeout=TIMEOUT_S)
    assert [hit.id for hit in words.results] == [context_id], words
    assert "<mark>" in words.results[0].highlighted, words

    # The error names every invalid field and its allowed values.
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT") as caught:
        contexts.StoreContext(pb.StoreContextRequest(thread_id=" ", source="robot", text="x"), timeout=TIMEOUT_S)
    assert set(errors.violations(caught[0])) == {"thread_id", "source"}, errors.violations(caught[0])
    assert "agent" in errors.violations(caught[0])["source"]
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT") as caught:
        contexts.SearchContext(pb.SearchContextRequest(limit=500), timeout=TIMEOUT_S)
    assert "100" in errors.violations(caught[0])["limit"]

    # An update with the version that was read succeeds once.
    patch = values.to_object({"status": "done", "ratio": None})
    changed = contexts.UpdateContext(pb.UpdateContextRequest(context_id=context_id, metadata_patch=patch, expected_version=1), timeout=TIMEOUT_S)
    assert list(changed.updated_fields) == ["metadata"] and changed.version == 2, changed
    assert changed.revision > stored.revision
    with refused(grpc.StatusCode.ABORTED, "VERSION_MISMATCH"):
        contexts.UpdateContext(pb.UpdateContextRequest(context_id=context_id, text="too late", expected_version=1), timeout=TIMEOUT_S)
    with refused(grpc.StatusCode.NOT_FOUND, "CONTEXT_NOT_FOUND"):
        contexts.UpdateContext(pb.UpdateContextRequest(context_id=2**53 - 1, text="x"), timeout=TIMEOUT_S)
    # An empty list clears the field; an absent one does not change it.
    contexts.UpdateContext(pb.UpdateContextRequest(context_id=context_id, images=context_pb2.ImageList()), timeout=TIMEOUT_S)
    (entry,) = contexts.GetContextByIds(pb.GetContextByIdsRequest(context_ids=[context_id]), timeout=TIMEOUT_S).contexts
    expected = {"status": "done", "attempts": 2**62, "nested": metadata["nested"]}
    assert values.from_object(entry.metadata) == expected, entry.metadata
    assert entry.content_type == "text" and not entry.images.images and list(entry.tags) == ["queue", "shutdown"], entry

    # A retry with the same idempotency key returns the first reply.
    request = pb.StoreContextRequest(thread_id=thread, source="user", text="Stored once.")
    key = (("idempotency-key", thread),)
    first = contexts.StoreContext(request, metadata=key, timeout=TIMEOUT_S)
    between = contexts.StoreContext(pb.StoreContextRequest(thread_id=thread, source="agent", text="Between."), timeout=TIMEOUT_S)
    again = contexts.StoreContext(request, metadata=key, timeout=TIMEOUT_S)
    assert again.context_id == first.context_id < between.context_id, (first, between, again)
    request.text = "Stored twice?"
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "IDEMPOTENCY_KEY_REUSED"):
        contexts.StoreContext(request, metadata=key, timeout=TIMEOUT_S)

    # A batch with an invalid item names it and stores nothing.
    entries = [pb.StoreContextRequest(thread_id=thread, source="user", text=text) for text in ("one", " ", "three")]
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT") as caught:
        contexts.StoreContextBatch(pb.StoreContextBatchRequest(entries=entries), timeout=TIMEOUT_S)
    assert list(errors.violations(caught[0])) == ["entries[1].text"], errors.violations(caught[0])
    partly = contexts.StoreContextBatch(pb.StoreContextBatchRequest(entries=entries, atomic=False), timeout=TIMEOUT_S)
    assert (partly.succeeded, partly.failed, partly.success) == (2, 1, False), partly
    assert [result.success for result in partly.results] == [True, False, True], partly

    # Threads, then delete.
    threads = contexts.ListThreads(pb.ListThreadsRequest(limit=1), timeout=TIMEOUT_S)
    assert threads.threads[0].thread_id == thread and threads.threads[0].entry_count == 5, threads
    gone = contexts.DeleteContext(pb.DeleteContextRequest(context_ids=pb.IdList(values=[context_id, 2**53 - 1])), timeout=TIMEOUT_S)
    assert gone.deleted_count == 1, gone
    gone = contexts.DeleteContextBatch(pb.DeleteContextBatchRequest(thread_ids=value_pb2.StringList(values=[thread])), timeout=TIMEOUT_S)
    assert gone.deleted_count == 4 and list(gone.criteria_used) == ["thread_ids"], gone
    assert not contexts.SearchContext(pb.SearchContextRequest(filter=only_thread), timeout=TIMEOUT_S).results


def follow(contexts, changes):
    thread = f"python-changes-{os.getpid()}"
    only_thread = context_pb2.Filter(thread_id=thread)

    # A list that waits returns the next change.
    request = change_service_pb2.ListChangesRequest(cursor="now")
    now = changes.ListChanges(request, timeout=TIMEOUT_S)
    assert not now.changes and not now.has_more and now.revision > 0, now
    request = change_service_pb2.ListChangesRequest(cursor=now.next_cursor, wait_ms=25_000, filter=only_thread, preview_chars=100)
    waiting = changes.ListChanges.future(request, timeout=TIMEOUT_S)
    stored = contexts.StoreContext(pb.StoreContextRequest(thread_id=thread, source="user", text="Wake the reader."), timeout=TIMEOUT_S)
    page = waiting.result()
    (change,) = page.changes
    assert (change.revision, change.operation, change.entity, change.id) == (stored.revision, "created", "context", str(stored.context_id)), page
    assert change.commit_end and change.preview == "Wake the reader." and not change.HasField("context"), page
    # The end of the wait is a normal reply.
    request = change_service_pb2.ListChangesRequest(cursor=page.next_cursor, wait_ms=50, filter=only_thread)
    assert not changes.ListChanges(request, timeout=TIMEOUT_S).changes

    # A stream sends the existing entries first, then each committed change.
    request = change_service_pb2.WatchRequest(snapshot=True, filter=only_thread, include_body=True)
    stream = changes.Watch(request, timeout=TIMEOUT_S)
    opened, entry, end = (next(stream) for _ in range(3))
    assert opened.HasField("opened") and not opened.cursor, opened
    assert entry.entry.context.text_content == "Wake the reader." and not entry.cursor, entry
    assert end.snapshot_end.revision >= stored.revision and end.cursor, end
    changed = contexts.UpdateContext(pb.UpdateContextRequest(context_id=stored.context_id, text="Wake it again."), timeout=TIMEOUT_S)
    update = next(stream)
    assert (update.change.operation, update.change.revision) == ("updated", changed.revision), update
    assert update.change.context.text_content == "Wake it again.", update
    gone = contexts.DeleteContext(pb.DeleteContextRequest(context_ids=pb.IdList(values=[stored.context_id])), timeout=TIMEOUT_S)
    delete = next(stream)
    assert (delete.change.operation, delete.change.revision) == ("deleted", gone.revision), delete
    assert not delete.change.HasField("context"), delete
    stream.cancel()
    # The cursor of any frame continues after it, here after the snapshot. A body is always the entry's current one.
    request = change_service_pb2.WatchRequest(cursor=end.cursor, filter=only_thread, include_body=True)
    stream = changes.Watch(request, timeout=TIMEOUT_S)
    again = [next(stream) for _ in range(3)]
    assert again[0].HasField("opened") and not again[1].change.HasField("context"), again
    assert [frame.change.revision for frame in again[1:]] == [changed.revision, gone.revision], again
    stream.cancel()

    for cursor in ("garbled", end.cursor[:-1], end.cursor + "A"):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "CURSOR_INVALID"):
            changes.ListChanges(change_service_pb2.ListChangesRequest(cursor=cursor), timeout=TIMEOUT_S)
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "CURSOR_INVALID"):
            next(changes.Watch(change_service_pb2.WatchRequest(cursor=cursor), timeout=TIMEOUT_S))
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT") as caught:
        changes.ListChanges(change_service_pb2.ListChangesRequest(limit=1001, wait_ms=25_001), timeout=TIMEOUT_S)
    assert set(errors.violations(caught[0])) == {"limit", "wait_ms"}, errors.violations(caught[0])
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT") as caught:
        next(changes.Watch(change_service_pb2.WatchRequest(cursor="now", snapshot=True), timeout=TIMEOUT_S))
    assert set(errors.violations(caught[0])) == {"snapshot"}, errors.violations(caught[0])


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7420"
    with open_channel(address) as channel:
        contexts = context_service_pb2_grpc.ContextServiceStub(channel)
        walk(contexts)
        follow(contexts, change_service_pb2_grpc.ChangeServiceStub(channel))
    print("python: stored, found, changed, deleted and followed through the generated client")


if __name__ == "__main__":
    main()
