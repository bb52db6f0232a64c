"""Keeps the transcripts of the Claude Agent SDK in the context service, so that any machine can resume a session.

    options = ClaudeAgentOptions(session_store=ContextSessionStore(Service("127.0.0.1:7420")))

A transcript is a thread. The thread `<prefix>/<project>` has one entry for each transcript of the project, which lists
it and holds its summary.
"""

import asyncio
import hashlib
import json
import threading
import uuid
from collections import defaultdict
from urllib.parse import quote

import errors
import grpc
import values
from claude_agent_sdk import SessionStore, fold_session_summary
from context.v1 import context_pb2, context_service_pb2 as pb, value_pb2
from service import Service, finished
from transcript import PAGE, Transcript, pages


class ContextSessionStore(SessionStore):
    """A `SessionStore` with all optional methods."""

    def __init__(self, service: Service, prefix="claude-sessions"):
        self._service, self._prefix = service, prefix
        self._appending = defaultdict(threading.Lock)

    async def append(self, key, entries):
        if entries:
            await finished(self._append, key, entries)

    async def load(self, key):
        return await asyncio.to_thread(self._transcript(key).newest) or None

    async def list_sessions(self, project_key):
        listed = await asyncio.to_thread(self._listed, project_key, {"subpath": ""})
        return [{"session_id": _field(hit, "session_id"), "mtime": _written_ms(hit)} for hit in listed]

    async def list_session_summaries(self, project_key):
        listed = await asyncio.to_thread(self._listed, project_key, {"subpath": ""})
        return [_summary(hit) for hit in listed if _field(hit, "summary")]

    async def list_subkeys(self, key):
        listed = await asyncio.to_thread(self._listed, key["project_key"], {"session_id": key["session_id"]})
        return [_field(hit, "subpath") for hit in listed if _field(hit, "subpath")]

    async def delete(self, key):
        await finished(self._delete, key)

    def _append(self, key, entries):
        thread = self._thread(key)
        # In this object, appends to a transcript run one after the other, so an entry that is sent twice is stored once.
        with self._appending[thread]:
            # The transcript is listed first. Otherwise a failure could leave entries that `delete` does not find.
            self._entry(key)
            transcript = self._transcript(key)
            known = transcript.known([entry["uuid"] for entry in entries if entry.get("uuid")])
            new = {}
            for entry in entries:
                message_id = entry.get("uuid") or uuid.uuid4().hex
                if message_id not in known:
                    new.setdefault(message_id, entry)
            transcript.append(new.items())
            self._fold(key, entries)

    def _fold(self, key, entries):
        """Updates the entry that lists the transcript: its time, and its summary with `entries` folded in."""
        while True:
            hit = self._entry(key)
            metadata = values.from_object(hit.metadata)
            if not key.get("subpath"):
                folded = fold_session_summary(_summary(hit) if metadata["summary"] else None, key, entries)
                metadata["summary"] = json.dumps(folded["data"])
            request = pb.UpdateContextRequest(context_id=hit.id, metadata=values.to_object(metadata), expected_version=hit.version)
            try:
                self._service.write(self._service.contexts.UpdateContext, request)
                return
            except grpc.RpcError as error:
                # Another process has updated the summary or deleted the session: read the entry again.
                if errors.reason(error) not in ("VERSION_MISMATCH", "CONTEXT_NOT_FOUND"):
                    raise

    def _entry(self, key):
        """Returns the entry that lists the transcript, and stores it first if there is none."""
        names = {"session_id": key["session_id"], "subpath": key.get("subpath", "")}
        while not (listed := self._listed(key["project_key"], names)):
            metadata = {**names, "framework": "claude-agent-sdk", "project_key": key["project_key"], "summary": ""}
            text = f"Transcript of Claude Code: {'/'.join(name for name in names.values() if name)}"
            thread = self._index(key["project_key"])
            request = pb.StoreContextRequest(thread_id=thread, source="agent", text=text, metadata=values.to_object(metadata))
            self._service.write(self._service.contexts.StoreContext, request)
        return listed[0]

    def _listed(self, project_key, names):
        """The entries that list transcripts with these names. If two processes list the same one, the first counts."""
        only = context_pb2.Filter(thread_id=self._index(project_key), metadata=values.to_object(names))
        newest_first = pages(self._service, only)
        return list({(_field(hit, "session_id"), _field(hit, "subpath")): hit for hit in newest_first}.values())

    def _delete(self, key):
        names = {name: key[name] for name in ("session_id", "subpath") if key.get(name)}
        only = context_pb2.Filter(thread_id=self._index(key["project_key"]), metadata=values.to_object(names))
        listed = list(pages(self._service, only))
        for start in range(0, len(listed), PAGE):
            page = listed[start : start + PAGE]
            threads = {self._thread({"project_key": key["project_key"], "session_id": _field(hit, "session_id"), "subpath": _field(hit, "subpath")}) for hit in page}
            request = pb.DeleteContextBatchRequest(thread_ids=value_pb2.StringList(values=threads))
            self._service.write(self._service.contexts.DeleteContextBatch, request)
            request = pb.DeleteContextRequest(context_ids=pb.IdList(values=[hit.id for hit in page]))
            self._service.write(self._service.contexts.DeleteContext, request)

    def _transcript(self, key):
        metadata = {"framework": "claude-agent-sdk", **key}
        return Transcript(self._service, self._thread(key), metadata)

    def _index(self, project_key):
        return _thread_id(self._prefix, project_key)

    def _thread(self, key):
        names = [key["project_key"], key["session_id"], *([key["subpath"]] if key.get("subpath") else [])]
        return _thread_id(self._prefix, *names)


def _thread_id(prefix, *names):
    """The thread of these names: unique to them, and at most 256 characters long."""
    thread = "/".join([prefix, *(quote(name, safe="") for name in names)])
    return thread if len(thread) <= 256 else f"{prefix}/{hashlib.sha256(thread.encode()).hexdigest()}"


def _field(hit, name):
    return hit.metadata.fields[name].string_value


def _written_ms(hit):
    return hit.updated_at.ToMilliseconds()


def _summary(hit):
    return {"session_id": _field(hit, "session_id"), "mtime": _written_ms(hit), "data": json.loads(_field(hit, "summary"))}
