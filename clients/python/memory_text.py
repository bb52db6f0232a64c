"""The texts of the memory tool: paths, contents, and what the model reads. Nothing here calls the service."""

import re
from typing import Any
from urllib.parse import unquote

from anthropic.lib.tools import ToolError
from anthropic.types.beta import BetaMemoryTool20250818InsertCommand as Insert
from anthropic.types.beta import BetaMemoryTool20250818StrReplaceCommand as StrReplace
from anthropic.types.beta import BetaMemoryTool20250818ViewCommand as View
from context_service_client.models import ArtifactSummary, GetArtifactReply

ROOT = "/memories"
MAX_CHARS, MAX_LINES = 100_000, 999_999
MAX_PATH_CHARS = 1_023  # The service takes 1 024, and the files in a directory begin with its path and a slash.
# An artifact cannot be blank. A blank file has this content, and its text is in this field of the metadata.
BLANK_CONTENT, BLANK_FIELD = "(This memory file is blank.)", "blank_memory_file"


def checked(path: str) -> str:
    """The path without empty parts. One that would lead out of /memories is refused, however it is encoded."""
    if not f"{path}/".startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with /memories, got: {path}")
    decoded, encoded = unquote(path), path
    while decoded != encoded:
        decoded, encoded = unquote(decoded), decoded
    if ".." in re.split(r"[/\\]", decoded):
        raise ToolError(f"Path {path} would escape /memories directory")
    plain = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
    if len(plain) > MAX_PATH_CHARS:
        raise ToolError(f"The path has {len(plain)} characters; the maximum is {MAX_PATH_CHARS}.")
    return plain


def stored(text: str, metadata: dict[str, Any], path: str) -> dict[str, Any]:
    """The content of a file's artifact, and its metadata if they change."""
    if len(text) > MAX_CHARS:
        raise ToolError(f"The file {path} would have {len(text)} characters; the maximum is {MAX_CHARS}.")
    if not text.strip():
        return {"content": BLANK_CONTENT, "metadata": {**metadata, BLANK_FIELD: text}}
    others = {key: value for key, value in metadata.items() if key != BLANK_FIELD}
    return {"content": text} if others == metadata else {"content": text, "metadata": others}


def text_of(file: GetArtifactReply) -> str:
    blank = file.metadata.to_dict().get(BLANK_FIELD)
    # Another client may have written to the artifact of a blank file.
    return blank if isinstance(blank, str) and file.content == BLANK_CONTENT else file.content


def is_whole(listed: ArtifactSummary) -> bool:
    """Whether the preview is the text of the file. Longer contents are cut to 200 characters and `...`."""
    return len(listed.content_preview) <= 200 and BLANK_FIELD not in listed.metadata


def replaced(text: str, command: StrReplace) -> tuple[str, str]:
    """The text after the command, and the reply."""
    old, path = command.old_str, command.path
    lines = [text.count("\n", 0, at) + 1 for at in range(len(text) + 1) if text.startswith(old, at)]
    if not lines:
        raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if text.count(old) > 1:
        problem = f"Multiple occurrences of old_str `{old}` in lines: {', '.join(map(str, lines))}."
        raise ToolError(f"No replacement was performed. {problem} Please ensure it is unique")
    changed = text.replace(old, command.new_str)
    first = max(1, lines[0] - 2)
    snippet = _numbered(changed.split("\n")[first - 1 : lines[0] + 2], first)
    title = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
    return changed, f"{title}\n{snippet}"


def inserted(text: str, command: Insert) -> tuple[str, str]:
    """The text after the command, and the reply."""
    at, lines = command.insert_line, text.removesuffix("\n").split("\n") if text else []
    if not 0 <= at <= len(lines):
        problem = f"It should be within the range [0, {len(lines)}]."
        raise ToolError(f"Invalid `insert_line` parameter: {at}. {problem}")
    changed = "\n".join([*lines[:at], command.insert_text.rstrip("\n"), *lines[at:]])
    return changed if changed.endswith("\n") else f"{changed}\n", f"The file {command.path} has been edited."


def shown(text: str, command: View) -> str:
    """The reply to a command that views a file."""
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise ToolError(f"File {command.path} exceeds maximum line limit of 999,999 lines.")
    first, last = command.view_range if command.view_range and len(command.view_range) == 2 else (1, -1)
    first = max(first, 1)
    numbered = _numbered(lines[first - 1 : None if last == -1 else last], first)
    return f"Here's the content of {command.path} with line numbers:\n{numbered}"


def listed(path: str, files: dict[str, int], command: View) -> str:
    """The reply to a command that views a directory: two levels of it in order, with the sizes of all files below."""
    totals: dict[tuple[str, ...], int] = {}
    directories = set()
    for file, size in files.items():
        parts = tuple(file[len(path) + 1 :].split("/"))
        for level in (parts[:1], parts[:2]) if parts[1:] else (parts,):
            totals[level] = totals.get(level, 0) + size
        directories |= {parts[:depth] for depth in (1, 2) if depth < len(parts)}
    title = f"Here're the files and directories up to 2 levels deep in {command.path}, excluding hidden items:"
    rows = [title, f"{_human(sum(files.values()))}\t{path}"]
    for level in sorted(totals):
        if not any(part.startswith(".") for part in level):
            rows.append(f"{_human(totals[level])}\t{path}/{'/'.join(level)}{'/' if level in directories else ''}")
    return "\n".join(rows)


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def _human(size: float) -> str:
    unit = "B"
    for larger in "KMG":
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.0f}{unit}" if size == int(size) else f"{size:.1f}{unit}"
