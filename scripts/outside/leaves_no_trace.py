"""Installs the gateway with its hooks for an agent, runs the sessions of remembers.py,
and uninstalls it. Then runs them in a new HOME without the gateway. Both must have the
same files, except for what the client itself writes differently each time.

    leaves_no_trace.py AGENT PROGRAM GATEWAY SCRATCH

See remembers.py for the arguments. HOME must point to an empty directory. Both runs
use the same path for it, because clients write the path into their files.
"""

import json
import os
import re
import subprocess
import sys

import agent_clients
import remembers

# What each client writes with times and ids in it. Each line is the path of a file or
# directory, and the fields that differ in it; without fields all of it may differ.
CHANGING = {
    "claude": {
        # When it first ran and which machine and user it invented, and when it last
        # used each of its own commands.
        r"\.claude\.json": ["firstStartTime", "machineID", "userID", "lastUsedAt"],
        # The id of the session that last counted which instructions were read.
        r"\.claude/plugins/store/cc-plugin-agents-md_builtin-\w+\.json": ["usage-rows-queued"],
        # Its own copies of .claude.json, named after the time.
        r"\.claude/backups/\.claude\.json\.backup\.\d+": None,
        # When it last deleted old files, which only a session of some length does.
        r"\.claude/\.last-cleanup": None,
        # The transcripts, named after the sessions.
        r"\.claude/projects/[^/]+/[0-9a-f-]{36}\.jsonl": None,
        # An empty directory for each session that ran a hook of SessionStart.
        r"\.claude/session-env(/[0-9a-f-]{36})?": None,
        # Its logs of the MCP servers, named after the time.
        r"\.cache(/claude-cli-nodejs(/[^/]+(/mcp-logs-context(/[^/]+\.jsonl)?)?)?)?": None,
    },
    "codex": {
        # Its temporary files, among them attempts to fetch plugins, which need a network.
        r"\.codex/\.tmp(/.*)?": None,
        # An id that it invents for each HOME.
        r"\.codex/installation_id": None,
        # The transcripts, in directories named after the day.
        r"\.codex/sessions(/\d+){0,3}(/rollout-[0-9a-zA-Z-]+\.jsonl)?": None,
        # Its databases of sessions, with their ids and times.
        r"\.codex/(goals|logs|memories|queue|state|thread_history)_\d+\.sqlite(-shm|-wal)?": None,
    },
    "gemini": {
        # The transcripts, named after the time.
        r"\.gemini/tmp/remembered/chats/session-[0-9a-fT-]+\.jsonl": None,
    },
}
# What uninstalling keeps: the sessions' state, which `hook status` names.
HOOK_STATE = r"\.local(/state(/context-service(/hooks(/.*)?)?)?)?"


def tree(directory):
    """The bytes of each file below the directory. Directories have none. Modes are not
    compared: Codex rewrites its own file when a person trusts hooks."""
    found = {}
    for parent, directories, files in os.walk(directory):
        for name in directories + files:
            path = os.path.join(parent, name)
            content = "directory"
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, directory)] = content
    return found


def without(fields, value):
    """The JSON value without the members of these names, and without an empty list of
    servers: `claude mcp remove` leaves one."""
    if isinstance(value, list):
        return [without(fields, inner) for inner in value]
    if isinstance(value, dict):
        members = value.items()
        return {name: without(fields, inner) for name, inner in members if name not in fields and (name, inner) != ("mcpServers", {})}
    return value


def comparable(found, changing):
    """The tree without what changes."""
    remaining = {}
    for path, content in found.items():
        rules = [fields for pattern, fields in changing.items() if re.fullmatch(pattern, path)]
        if not rules:
            remaining[path] = content
        elif rules[0] is not None:
            remaining[path] = without(rules[0], json.loads(content))
    return remaining


def main():
    name, program, gateway, scratch = sys.argv[1:]
    home = os.environ["HOME"]

    def install(*more):
        subprocess.run([gateway, "install", name, *more], check=True, stdin=subprocess.DEVNULL, timeout=agent_clients.TIMEOUT_S)

    def end(label):
        found = tree(home)
        os.rename(home, os.path.join(scratch, label))
        os.mkdir(home, 0o700)
        return found

    agent = agent_clients.AGENTS[name]
    agent.configure(home)
    install("--hooks", "--db-path", os.environ["DB_PATH"])
    agent.trust_hooks(program, home)
    first = remembers.check(name, program, gateway, scratch)
    assert "store_context" in first, "the model is not offered the gateway's tools"
    install("--uninstall")
    with_us = end("home-with")
    agent.configure(home)
    remembers.sessions(name, program, scratch, "control")
    without_us = end("home-without")

    changing = CHANGING[name]
    ours = comparable(with_us, {**changing, HOOK_STATE: None})
    control = comparable(without_us, changing)
    different = [path for path in sorted({*ours, *control}) if ours.get(path) != control.get(path)]
    for path in different:
        print(f"{path}\n  with the gateway:    {str(ours.get(path))[:2000]}\n  without the gateway: {str(control.get(path))[:2000]}")
    assert not different, f"{name}: {len(different)} files differ from a run without the gateway: {different}"
    print(f"{name}: after the gateway was uninstalled, {len(ours)} files and directories are those of a run without it")


if __name__ == "__main__":
    main()
