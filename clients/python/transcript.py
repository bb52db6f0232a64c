"""Keeps JSON objects, such as the messages of a session, as the entries of a thread, in their order.

The text of an entry is what was said, so that searches find it. The object itself is JSON text in the metadata: there
it may have what metadata cannot (U+0000, integers beyond 64 bits, any depth), and long ones are continued in further
entries.
"""

import json

import values
from context.v1 import context_pb2, context_service_pb2 as pb, value_pb2
from service import Service

PAGE = 100  # Maximum of a batch, and of the page of a search.
PART_CHARS = 400_000  # A page of such parts is smaller than the largest reply.
TEXT_CHARS = 100_000


class Transcript:
    """The objects of a thread. Each of its entries has this metadata."""

    def __init__(self, service: Service, thread_id, metadata):
        self._service, self._thread, self._metadata = service, thread_id, metadata

    def append(self, items):
        """Stores pairs of an id and an object, in batches of at most 100 entries and about 16 MiB. A batch is stored
        completely or not at all. An object is never split between batches, so a larger one is a batch of its own. One
        whose JSON has more than 40 million characters is refused."""
        batch = []
        for message_id, item in items:
            entries = self._entries(message_id, item)
            if batch and (len(batch) + len(entries) > PAGE or sum(map(_size, batch + entries)) > 16 << 20):
                self._store(batch)
                batch = []
            batch += entries
        if batch:
            self._store(batch)

    def newest(self, limit=None):
        """Returns up to `limit` of the newest objects, oldest first. Without a limit it returns all."""
        if limit is not None and limit <= 0:
            return []
        found = []
        for _, item in self._newest_first(limit):
            found.append(item)
            if len(found) == limit:
                break
        return found[::-1]

    def pop(self):
        """Deletes the newest object and returns it; None if there is none."""
        while True:
            newest = next(self._newest_first(1), None)
            if newest is None:
                return None
            ids, item = newest
            request = pb.DeleteContextRequest(context_ids=pb.IdList(values=ids))
            if self._service.write(self._service.contexts.DeleteContext, request).deleted_count:
                return item  # Otherwise another caller has deleted it.

    def clear(self):
        self._service.write(self._service.contexts.DeleteContext, pb.DeleteContextRequest(thread_id=self._thread))

    def known(self, message_ids):
        """Those of the ids that are stored."""
        found = set()
        for start in range(0, len(message_ids), PAGE):
            wanted = value_pb2.Value(list_value=value_pb2.ListValue(values=map(values.to_value, message_ids[start : start + PAGE])))
            condition = context_pb2.MetadataFilter(key="message_id", operator="in", value=wanted, case_sensitive=True)
            # Only first parts are read. Two processes may have stored the same object.
            first = context_pb2.MetadataFilter(key="part", operator="eq", value=values.to_value(0))
            only = context_pb2.Filter(thread_id=self._thread, metadata_filters=[condition, first])
            found |= {hit.metadata.fields["message_id"].string_value for hit in pages(self._service, only)}
        return found

    def _entries(self, message_id, item):
        # Escaped, it is ASCII: it has neither U+0000 nor half a surrogate pair.
        whole = json.dumps(item, separators=(",", ":"))
        parts = [whole[start : start + PART_CHARS] for start in range(0, len(whole), PART_CHARS)]
        said, source = _said(item), "user" if _role(item) == "user" else "agent"
        for number, part in enumerate(parts):
            metadata = {**self._metadata, "message_id": message_id, "part": number, "parts": len(parts), "json": part}
            text = said if number == 0 else f"(part {number + 1} of {len(parts)})"
            parts[number] = pb.StoreContextRequest(
                thread_id=self._thread, source=source, text=text, metadata=values.to_object(metadata)
            )
        return parts

    def _store(self, entries):
        self._service.write(self._service.contexts.StoreContextBatch, pb.StoreContextBatchRequest(entries=entries))

    def _newest_first(self, page_size=None):
        """All objects, each with the ids of its entries."""
        ids, later = [], ""
        for hit in pages(self._service, context_pb2.Filter(thread_id=self._thread), page_size):
            fields = hit.metadata.fields
            if "json" not in fields:
                continue  # Another program has stored it.
            # The last part of an object comes first. Parts that were read before it are of an object that has been
            # deleted meanwhile.
            if fields["part"].int_value == fields["parts"].int_value - 1:
                ids, later = [], ""
            ids.append(hit.id)
            later = fields["json"].string_value + later
            if fields["part"].int_value == 0:
                yield ids, json.loads(later)


def pages(service, only, page_size=None):
    """All entries that satisfy a filter, newest first, read in pages of 2 to 100. Entries that are stored or deleted
    meanwhile shift no page."""
    oldest, read = "", set()  # `read`: the ids, already yielded, of entries whose time is `oldest`.
    request = pb.SearchContextRequest(filter=only, limit=max(2, min(page_size or PAGE, PAGE)))
    while True:
        page = service.read(service.contexts.SearchContext, request)
        # Each page begins with an entry of the previous one. If it does not, entries before it were deleted.
        if request.offset and not (page.results and page.results[0].id in read):
            request.offset //= 2
            continue
        yield from (hit for hit in page.results if hit.id not in read)
        if not page.has_more:
            return
        times = [hit.created_at.ToJsonString() for hit in page.results]
        if times[-1] != oldest:
            oldest, read, request.offset = times[-1], set(), 0
        last = times.count(oldest)
        read.update(hit.id for hit in page.results[-last:])
        request.offset, request.filter.end_date = request.offset + last - 1, oldest


def _size(entry):
    return len(entry.metadata.fields["json"].string_value) + len(entry.text)


def _role(item):
    return item.get("role") or item.get("type")


def _said(item):
    """The words of a message of Claude Code or of OpenAI's API; otherwise its type."""
    message = item["message"] if isinstance(item.get("message"), dict) else item
    said = next((message[key] for key in ("content", "output", "arguments") if message.get(key)), "")
    if isinstance(said, list):
        said = "\n".join(block["text"] for block in said if isinstance(block, dict) and isinstance(block.get("text"), str))
    if isinstance(said, str):
        text = said.replace("\0", "").encode(errors="replace").decode()[:TEXT_CHARS]
        if text.strip():
            return text
    return f"({item.get('type', 'message')})"
