"""Anthropic's memory tool (`memory_20250818`) on the context service. A file is an artifact with its path, and each
edit makes a version. Replies and errors have the words of the file system tool in the SDK.

    memory = ContextMemoryTool(connect("http://127.0.0.1:7420"))
    runner = client.beta.messages.tool_runner(tools=[memory], ...)

Needs memory_text.py, the packages anthropic, httpx and attrs, and the client generated from OpenAPI (docs/agents.md).
"""

import asyncio
import contextlib
import random
import ssl
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx
from anthropic.lib.tools import BetaFunctionToolResultType, ToolError
from anthropic.tools.memory import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from anthropic.types.beta import BetaMemoryTool20250818Command as Command
from anthropic.types.beta import BetaMemoryTool20250818CreateCommand as Create
from anthropic.types.beta import BetaMemoryTool20250818DeleteCommand as Delete
from anthropic.types.beta import BetaMemoryTool20250818InsertCommand as Insert
from anthropic.types.beta import BetaMemoryTool20250818RenameCommand as Rename
from anthropic.types.beta import BetaMemoryTool20250818StrReplaceCommand as StrReplace
from anthropic.types.beta import BetaMemoryTool20250818ViewCommand as View
from context_service_client import AuthenticatedClient
from context_service_client.api.artifacts import create_artifact, delete_artifact, delete_artifacts
from context_service_client.api.artifacts import get_artifact_by_path, list_artifacts, move_artifacts, update_artifact
from context_service_client.models import ArtifactSummary, CreateArtifactRequest, DeleteArtifactsRequest
from context_service_client.models import GetArtifactReply, MoveArtifactsRequest, Problem, UpdateArtifactBody
from context_service_client.types import UNSET
from memory_text import ROOT, checked, inserted, is_whole, listed, replaced, shown, stored, text_of

ATTEMPTS = 200  # An attempt fails only if the file was edited or deleted in between.
Reply = TypeVar("Reply")


def connect(url: str, key: str = "none", *, verify: ssl.SSLContext | bool = True) -> AuthenticatedClient:
    """A client of the service, for any number of threads. A service that asks for no key ignores it.

    `verify` is that of httpx: for `https://`, an `ssl.SSLContext` with the authorities to trust.
    """
    if isinstance(verify, ssl.SSLContext) and not url.lower().startswith("https://"):
        raise ValueError(f"`verify` is for TLS, but {url} is plain text; write https://host:port")
    # httpx closes connections beyond those that it keeps, even one that another thread begins to use.
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    timeout, httpx_args = httpx.Timeout(30), {"limits": limits}
    return AuthenticatedClient(base_url=url, token=key, timeout=timeout, verify_ssl=verify, httpx_args=httpx_args)


class ContextMemoryTool(BetaAbstractMemoryTool):
    """The memory tool for `anthropic.Anthropic`. `options` are those of `BetaAbstractMemoryTool`."""

    def __init__(self, client: AuthenticatedClient, **options: Any) -> None:
        super().__init__(**options)
        self._client = client

    def view(self, command: View) -> str:
        path = checked(command.path)
        if file := self._file(path):
            return shown(text_of(file), command)
        files = self._below(path)
        if not files and path != ROOT:
            raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
        with ThreadPoolExecutor(8) as pool:
            sizes = pool.map(self._size, files)
        return listed(path, {str(file.path): size for file, size in zip(files, sizes, strict=True)}, command)

    def create(self, command: Create) -> str:
        path, taken = checked(command.path), f"File {command.path} already exists"
        # A create checks only the path itself. A move also refuses a directory's path, and one that lies in a file.
        # If this process ends before the move, the artifact stays at `/creating/<uuid>`.
        elsewhere = f"/creating/{uuid.uuid4()}"
        body = {"path": elsewhere, **stored(command.file_text, {}, command.path)}
        self._require_free(path, taken)
        created = _done(create_artifact.sync(client=self._client, body=CreateArtifactRequest.from_dict(body)))
        reply: Any = None
        try:
            reply = move_artifacts.sync(client=self._client, body=MoveArtifactsRequest(path=elsewhere, to=path))
        finally:
            if reply is None or isinstance(reply, Problem):
                # If this fails too, the error is still that of the move.
                with contextlib.suppress(Exception):
                    delete_artifact.sync(created.id, client=self._client)
        if isinstance(reply, Problem):
            self._require_free(path, taken)
        _done(reply, PATH_TAKEN=taken)
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: StrReplace) -> str:
        return self._edit(command.path, lambda text: replaced(text, command))

    def insert(self, command: Insert) -> str:
        return self._edit(command.path, lambda text: inserted(text, command))

    def delete(self, command: Delete) -> str:
        path = checked(command.path)
        if path == ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        if self._delete(path) == 0:
            raise ToolError(f"The path {command.path} does not exist")
        return f"Successfully deleted {command.path}"

    def rename(self, command: Rename) -> str:
        old, new = checked(command.old_path), checked(command.new_path)
        if old == ROOT:
            raise ToolError("Cannot rename the /memories directory itself")
        taken = f"The destination {command.new_path} already exists"
        missing = f"The path {command.old_path} does not exist"
        if old.startswith(f"{new}/") and self._exists(new):
            raise ToolError(taken)
        reply = move_artifacts.sync(client=self._client, body=MoveArtifactsRequest(path=old, to=new))
        if isinstance(reply, Problem):  # What the SDK's tool says, which looks at the destination first.
            if not self._exists(new) and not self._exists(old):
                raise ToolError(missing)
            self._require_free(new, taken)
            if new.startswith(f"{old}/"):
                raise ToolError(f"Cannot rename {command.old_path} to {command.new_path}, which lies in it")
        _done(reply, PATH_TAKEN=taken, ARTIFACT_NOT_FOUND=missing)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear_all_memory(self) -> str:
        self._delete(ROOT)
        return "All memory cleared"

    def _edit(self, given: str, change: Callable[[str], tuple[str, str]]) -> str:
        """Changes the text of a file. If another caller changed it after it was read, reads it again."""
        path = checked(given)
        for attempt in range(ATTEMPTS):
            if (file := self._file(path)) is None:
                if self._is_directory(path):
                    raise ToolError(f"The path {given} is not a file.")
                raise ToolError(f"The path {given} does not exist. Please provide a valid path.")
            text, sentence = change(text_of(file))
            body = stored(text, file.metadata.to_dict(), given) | {"return_content": False}
            reply = update_artifact.sync(
                file.id, client=self._client, body=UpdateArtifactBody.from_dict(body), if_match=f'"{file.version}"'
            )
            if not isinstance(reply, Problem) or reply.reason not in ("VERSION_MISMATCH", "ARTIFACT_NOT_FOUND"):
                _done(reply)
                return sentence
            time.sleep(random.uniform(0, min(0.1, 0.001 * 2**attempt)))
        raise ToolError(f"The file {given} was not edited: others changed it during each of {ATTEMPTS} attempts.")

    def _file(self, path: str) -> GetArtifactReply | None:
        if path == ROOT:
            return None
        reply = get_artifact_by_path.sync(client=self._client, path=path)
        if isinstance(reply, Problem) and reply.reason == "ARTIFACT_NOT_FOUND":
            return None
        file: GetArtifactReply = _done(reply)
        return file

    def _below(self, path: str, limit: int | None = None) -> list[ArtifactSummary]:
        """The files in a directory and in those below it: all, or at most `limit`."""
        files: list[ArtifactSummary] = []
        more: Any = UNSET
        while more is not None:
            reply = list_artifacts.sync(client=self._client, path_prefix=f"{path}/", limit=limit or 50, cursor=more)
            page = _done(reply)
            files += page.result
            more = None if limit else page.next_cursor
        return files

    def _is_directory(self, path: str) -> bool:
        return path == ROOT or bool(self._below(path, 1))

    def _size(self, file: ArtifactSummary) -> int:
        if is_whole(file):
            return len(file.content_preview.encode())
        read = self._file(str(file.path))
        return len(text_of(read).encode()) if read else 0

    def _delete(self, path: str) -> int:
        reply = delete_artifacts.sync(client=self._client, body=DeleteArtifactsRequest(path=path))
        return _done(reply).deleted_count

    def _exists(self, path: str) -> bool:
        return self._file(path) is not None or self._is_directory(path)

    def _require_free(self, path: str, taken: str) -> None:
        """Refuses a path that exists, or lies in a file."""
        parts = path.split("/")
        for parent in ("/".join(parts[:end]) for end in range(3, len(parts))):
            if self._file(parent):
                raise ToolError(f"The path {parent} is not a directory.")
        if self._exists(path):
            raise ToolError(taken)


class AsyncContextMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for `anthropic.AsyncAnthropic`. Each command runs in a thread."""

    def __init__(self, client: AuthenticatedClient, **options: Any) -> None:
        super().__init__(**options)
        self._tool = ContextMemoryTool(client)

    async def execute(self, command: Command) -> BetaFunctionToolResultType:
        return await asyncio.to_thread(self._tool.execute, command)

    view = create = str_replace = insert = delete = rename = execute

    async def clear_all_memory(self) -> str:
        return await asyncio.to_thread(self._tool.clear_all_memory)


def _done(reply: Problem | Reply | None, **sentences: str) -> Reply:
    """The reply of a call. An error has the sentence that is given for its reason, else its own."""
    if reply is None or isinstance(reply, Problem):
        raise ToolError(sentences.get(reply.reason, reply.detail) if reply else "The reply is not one of the service.")
    return reply
