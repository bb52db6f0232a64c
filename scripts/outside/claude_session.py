"""Runs one Claude Code session against the gateway: store, search, get, update,
delete, and a mistake in between. Each result is checked as the model sees it.

    claude_session.py CLAUDE NAME MCP_CONFIG SCRATCH

CLAUDE is the program, NAME the server's name in the MCP_CONFIG file, SCRATCH a
directory for logs. HOME must point to a directory that may be deleted.
"""

import json
import os
import subprocess
import sys

import fake_messages_api

TIMEOUT_S = 120


def story(server):
    """The scripted model. Yields tool calls, receives `(text, is_error)`."""

    def tool(name):
        return f"mcp__{server}__{name}"

    def good(result):
        text, is_error = result
        assert not is_error, f"the tool reported an error: {text[:500]}"
        return json.loads(text)

    def bad(result):
        text, is_error = result
        assert is_error, f"the tool should have refused: {text[:500]}"
        return text

    thread = f"claude-{server}"
    stored = good(
        (
            yield tool("store_context"),
            {
                "thread_id": thread,
                "source": "agent",
                "text": "The parser dropped the last token of a line that ended in a tab.",
                "tags": ["Parser", " bug "],
                "metadata": {"status": "active", "priority": 7},
            },
        )
    )
    assert stored["success"] is True, stored
    context_id = stored["context_id"]
    assert isinstance(context_id, int) and context_id > 0, stored

    found = good((yield tool("search_context"), {"thread_id": thread, "metadata_filters": [{"key": "priority", "operator": "gte", "value": 7}]}))
    assert [entry["id"] for entry in found["results"]] == [context_id], found
    assert found["results"][0]["tags"] == ["bug", "parser"], found

    ranked = good((yield tool("fts_search_context"), {"query": "tokens dropped", "thread_id": thread}))
    assert [entry["id"] for entry in ranked["results"]] == [context_id], ranked

    # Many clients send structures as strings; the gateway reads them by schema.
    fetched = good((yield tool("get_context_by_ids"), {"context_ids": json.dumps([context_id])}))
    (entry,) = fetched["result"]
    assert entry["text_content"].startswith("The parser dropped"), entry
    assert entry["metadata"] == {"status": "active", "priority": 7}, entry

    refusal = bad((yield tool("store_context"), {"thread_id": thread, "source": "robot", "text": "x"}))
    assert "source" in refusal and "agent" in refusal, refusal

    changed = good((yield tool("update_context"), {"context_id": context_id, "metadata_patch": {"status": "done", "priority": None}}))
    assert changed["success"] is True and changed["updated_fields"] == ["metadata"], changed

    fetched = good((yield tool("get_context_by_ids"), {"context_ids": [context_id]}))
    assert fetched["result"][0]["metadata"] == {"status": "done"}, fetched

    gone = good((yield tool("delete_context"), {"context_ids": [context_id]}))
    assert gone["deleted_count"] == 1, gone

    fetched = good((yield tool("get_context_by_ids"), {"context_ids": [context_id]}))
    assert fetched["result"] == [], fetched


def main():
    claude, server, config, scratch = sys.argv[1:]
    log_path = os.path.join(scratch, f"messages-{server}.log")
    with open(log_path, "w") as log:
        script = fake_messages_api.Script(story(server))
        api = fake_messages_api.serve(script, log)
        environment = {
            **os.environ,
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{api.server_port}",
            # The fake API above does not check the key.
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        environment.pop("CLAUDECODE", None)
        command = [claude, "-p", "Keep and find what you learn.", "--mcp-config", config, "--strict-mcp-config"]
        command += ["--allowedTools", f"mcp__{server}__*"]
        try:
            run = subprocess.run(command, env=environment, cwd=scratch, timeout=TIMEOUT_S, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            sys.exit(f"FAILED: the session did not end within {TIMEOUT_S} s; requests: {log_path}")
    if script.failure or not script.finished or run.returncode != 0:
        print(run.stdout[-2000:], run.stderr[-2000:], sep="\n", file=sys.stderr)
        sys.exit(f"FAILED: session over {server}: {script.failure or f'ended early with status {run.returncode}'}")
    print(f"session over {server}: every result as expected")


if __name__ == "__main__":
    main()
