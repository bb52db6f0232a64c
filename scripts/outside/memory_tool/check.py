"""Checks clients/python/memory_tool.py against a service, through the SDK's tool runner. Its Messages API is a script
that asks for one command after the other, so nothing leaves this machine.

    python3 check.py URL [SEED...]

With seeds, only the comparison with the SDK's file system tool runs, once for each.
"""

import asyncio
import collections
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import anthropic
import httpx2
from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool
from context_service_client.api.artifacts import get_artifact_by_path, get_artifact_version, list_artifacts, update_artifact
from context_service_client.models import UpdateArtifactBody
from memory_tool import AsyncContextMemoryTool, ContextMemoryTool, connect

SCENARIO = pathlib.Path(__file__).with_name("scenario.json")
SEEDS = range(40)
AT_ONCE = 64
ROUNDS = 3


class Script:
    """A Messages API that asks for the commands, and keeps each result as `(text, is_error)`."""

    def __init__(self, commands):
        self.commands, self.results, self._lock = commands, [], threading.Lock()

    def answer(self, request):
        asked = json.loads(request.content)
        with self._lock:
            if asked["messages"][-1]["content"] == QUESTION["messages"][0]["content"]:
                assert asked["tools"] == [{"type": "memory_20250818", "name": "memory"}], asked["tools"]
            else:
                (result,) = asked["messages"][-1]["content"]
                assert result["tool_use_id"] == f"toolu_{len(self.results)}", result
                self.results.append((result["content"], result.get("is_error", False)))
            number = len(self.results)
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "memory", "input": None, "caller": {"type": "direct"}}
        content = [use | {"input": self.commands[number]}] if number < len(self.commands) else [{"type": "text", "text": "Done."}]
        stop = "tool_use" if number < len(self.commands) else "end_turn"
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": content}
        return httpx2.Response(200, json=message | {"stop_reason": stop, "usage": {"input_tokens": 1, "output_tokens": 1}})


QUESTION = {"model": "scripted", "max_tokens": 1024, "messages": [{"role": "user", "content": "What do you remember?"}]}


def converse(tool, commands):
    script = Script(commands)
    with httpx2.Client(transport=httpx2.MockTransport(script.answer)) as http:
        client = anthropic.Anthropic(api_key="none", base_url="http://scripted", http_client=http)
        client.beta.messages.tool_runner(tools=[tool], **QUESTION).until_done()
    return script.results


async def converse_async(tool, commands):
    script = Script(commands)

    async def answer(request):
        return script.answer(request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        client = anthropic.AsyncAnthropic(api_key="none", base_url="http://scripted", http_client=http)
        await client.beta.messages.tool_runner(tools=[tool], **QUESTION).until_done()
    return script.results


def read(tool, path):
    """The lines of a file."""
    ((text, is_error),) = converse(tool, [{"command": "view", "path": path}])
    assert not is_error, text
    return [line.split("\t", 1)[1] for line in text.split("\n")[1:]]


def scenario(tool, converse):
    cases = json.loads(SCENARIO.read_text())
    tool.clear_all_memory()
    results = converse([case["input"] for case in cases])
    assert len(results) == len(cases)
    for case, result in zip(cases, results):
        text = case.get("error") or case["text"].replace("{hidden}", "hidden items")
        assert result == (text, "error" in case), f"{case['input']}\n{result}\ninstead of\n{text}"
    return len(cases)


def limits(tool):
    tool.clear_all_memory()
    long = "/memories/long.md"
    refused = "The file /memories/long.md would have 100001 characters; the maximum is 100000."
    results = converse(
        tool,
        [
            {"command": "create", "path": long, "file_text": "ü" * 100_001},
            {"command": "create", "path": long, "file_text": "🦀" * 100_000},
            {"command": "insert", "path": long, "insert_line": 1, "insert_text": "x"},
            {"command": "str_replace", "path": long, "old_str": "🦀" * 100_000, "new_str": "x" * 100_001},
        ],
    )
    assert results[0] == (refused, True) and results[1] == (f"File created successfully at: {long}", False), results[:2]
    assert results[2] == (refused.replace("100001", "100003"), True), results[2]
    assert results[3] == (refused, True), results[3]
    assert read(tool, long) == ["🦀" * 100_000]

    # More files than a page of the list has, and larger ones than a preview shows.
    tool.clear_all_memory()
    sizes = [number * 7 for number in range(120)]
    files = [{"command": "create", "path": f"/memories/many/{size:03}", "file_text": "x" * size} for size in sizes]
    *_, (text, _) = converse(tool, [*files, {"command": "view", "path": "/memories"}])
    rows = text.split("\n")[3:]
    assert rows == [f"{size}B\t/memories/many/{size:03}" for size in sizes], text
    results = converse(
        tool,
        [
            {"command": "rename", "old_path": "/memories/many", "new_path": "/memories/all"},
            {"command": "view", "path": "/memories/many"},
            {"command": "view", "path": "/memories/all/833"},
            {"command": "delete", "path": "/memories/all"},
            {"command": "view", "path": "/memories"},
        ],
    )
    assert [is_error for _, is_error in results] == [False, True, False, False, False], results
    assert results[-1][0].endswith(":\n0B\t/memories"), results[-1]


def versions(tool, client):
    """Each edit is a version. What others write to the artifact is kept, a marker of a blank file included."""
    tool.clear_all_memory()
    path = "/memories/history.md"
    converse(tool, [{"command": "create", "path": path, "file_text": ""}, {"command": "insert", "path": path, "insert_line": 0, "insert_text": "one"}])
    converse(tool, [{"command": "str_replace", "path": path, "old_str": "one", "new_str": "two"}])
    artifact = get_artifact_by_path.sync(client=client, path=path)
    assert (artifact.version, artifact.content, artifact.metadata.to_dict()) == (3, "two\n", {}), artifact
    assert get_artifact_version.sync(artifact.id, 2, client=client).content == "one\n"

    body = UpdateArtifactBody.from_dict({"metadata": {"project": "x"}})
    update_artifact.sync(artifact.id, client=client, body=body)
    converse(tool, [{"command": "str_replace", "path": path, "old_str": "two\n", "new_str": ""}])
    assert read(tool, path) == [""]
    update_artifact.sync(artifact.id, client=client, body=UpdateArtifactBody.from_dict({"content": "written by another client"}))
    assert read(tool, path) == ["written by another client"]
    converse(tool, [{"command": "insert", "path": path, "insert_line": 1, "insert_text": "more"}])
    artifact = get_artifact_by_path.sync(client=client, path=path)
    assert artifact.content == "written by another client\nmore\n" and artifact.metadata.to_dict() == {"project": "x"}, artifact


def at_once(work, inputs):
    """Runs all, starting together, and returns the results in order."""
    inputs = list(inputs)
    barrier = threading.Barrier(len(inputs))

    def run(given):
        barrier.wait()
        return work(given)

    with ThreadPoolExecutor(len(inputs)) as pool:
        return list(pool.map(run, inputs))


def concurrent(tool, client):
    tool.clear_all_memory()
    path, names = "/memories/shared.md", [f"agent-{number:02}" for number in range(AT_ONCE)]
    before = "".join(f"old-{name}\n" for name in names)
    converse(tool, [{"command": "create", "path": path, "file_text": before}])

    def edit(name):
        return converse(
            tool,
            [
                {"command": "insert", "path": path, "insert_line": 0, "insert_text": f"new-{name}"},
                {"command": "str_replace", "path": path, "old_str": f"old-{name}\n", "new_str": f"changed-{name}\n"},
            ],
        )

    for results in at_once(edit, names):
        assert [is_error for _, is_error in results] == [False, False], results
    lines = read(tool, path)
    expected = sorted(["", *(f"new-{name}" for name in names), *(f"changed-{name}" for name in names)])
    assert sorted(lines) == expected, set(expected) ^ set(lines)
    artifact = get_artifact_by_path.sync(client=client, path=path)
    assert artifact.version == 1 + 2 * AT_ONCE, artifact.version

    async def insert_all():
        inserts = [[{"command": "insert", "path": path, "insert_line": 0, "insert_text": f"async-{name}"}] for name in names]
        return await asyncio.gather(*(converse_async(AsyncContextMemoryTool(client), commands) for commands in inserts))

    for results in asyncio.run(insert_all()):
        assert results == [(f"The file {path} has been edited.", False)], results
    assert sorted(read(tool, path)) == sorted([*expected, *(f"async-{name}" for name in names)])

    # One of many creates or renames succeeds, and names the same file afterwards.
    created = at_once(lambda name: converse(tool, [{"command": "create", "path": "/memories/one.md", "file_text": name}])[0], names)
    assert sorted(created)[0] == ("File /memories/one.md already exists", True) and [error for _, error in created].count(False) == 1
    assert read(tool, "/memories/one.md") == [names[[error for _, error in created].index(False)]]
    converse(tool, [{"command": "create", "path": f"/memories/d/{name}", "file_text": name} for name in names])
    moved = at_once(lambda name: converse(tool, [{"command": "rename", "old_path": "/memories/d", "new_path": f"/memories/to/{name}"}])[0], names[:8])
    assert [error for _, error in moved].count(False) == 1, moved
    winner = names[[error for _, error in moved].index(False)]
    results = converse(tool, [{"command": "view", "path": f"/memories/to/{winner}"}, {"command": "view", "path": "/memories/d"}])
    assert results[0][0].count("\n") == 1 + AT_ONCE and results[1][1], results

    # Of a file and a directory of one name, at most one is created.
    for number in range(24):
        file = f"/memories/clash-{number}"
        results = at_once(lambda path: tool_call(tool, {"command": "create", "path": path, "file_text": "x"}), [file, f"{file}/below"])
        assert [error for _, error in results].count(False) == 1, results


TURNS = 12
RACES = ["/memories/r", "/memories/r/s", "/memories/r/s/t", "/memories/u", "/memories/u/s", "/memories/v/r/s"]


def race(tool, client):
    """Agents create, rename and delete the same few names. No name may become both a file and a directory, and no
    create may leave its artifact in /creating/."""
    tool.clear_all_memory()

    def agent(number):
        choose, done = random.Random(number), []
        for turn in range(TURNS):
            old, new = choose.sample(RACES, 2)
            commands = [
                {"command": "create", "path": new, "file_text": f"{number} {turn}"},
                {"command": "rename", "old_path": old, "new_path": new},
                {"command": "rename", "old_path": old, "new_path": new},
                {"command": "delete", "path": old},
            ]
            # The last command of all is a create, so that a file is left.
            command = commands[0] if turn == TURNS - 1 else choose.choice(commands)
            done += [] if tool_call(tool, command)[1] else [command["command"]]
        return done

    done = collections.Counter(name for commands in at_once(agent, range(AT_ONCE)) for name in commands)
    assert min(done[name] for name in ("create", "rename", "delete")) > 10, f"the agents were not in each other's way: {done}"
    files = list_artifacts.sync(client=client, path_prefix="/memories/", limit=50)
    paths = [file.path for file in files.result]
    assert paths and not files.next_cursor, files
    both = [path for path in paths if any(other.startswith(f"{path}/") for other in paths)]
    assert not both, f"files and directories at once: {both} of {paths}"
    left = list_artifacts.sync(client=client, path_prefix="/creating/").result
    assert not left, left
    return done


def tool_call(tool, command):
    """What the runner does with a command, without the Messages API."""
    try:
        return tool.call(command), False
    except ToolError as error:
        return str(error), True


NAMES = ["a", "b.md", "c d", "é🦀", ".hidden", "node_modules", "a.b", "Z"]
TEXTS = ["", "\n", "x", "x\n", "one\ntwo\nthree\n", "one\ntwo\nx\n\n", " \t\n ", "ab\r\ncd\r\n", "🦀\nü\nx🦀", "\n\nx", "x" * 1500, "q\n" * 300]
PIECES = ["x", "one", "two\n", "\n", "🦀", "ab\r", "q\nq\nq", "nothing", "", "xx"]


def random_command(choose, known):
    def path():
        if known and choose.random() < 0.6:
            return choose.choice(known)
        return "/memories" + "".join(f"/{choose.choice(NAMES)}" for _ in range(choose.choice([0, 1, 1, 2, 2, 3])))

    match choose.choice(["view", "view", "create", "create", "str_replace", "insert", "insert", "delete", "rename"]):
        case "view":
            window = {"view_range": [choose.randint(-2, 9), choose.randint(-1, 9)]} if choose.random() < 0.3 else {}
            return {"command": "view", "path": path(), **window}
        case "create":
            known.append(created := path())
            return {"command": "create", "path": created, "file_text": choose.choice(TEXTS)}
        case "str_replace":
            return {"command": "str_replace", "path": path(), "old_str": choose.choice(PIECES), "new_str": choose.choice(PIECES)}
        case "insert":
            return {"command": "insert", "path": path(), "insert_line": choose.randint(-1, 5), "insert_text": choose.choice(TEXTS)}
        case "delete":
            return {"command": "delete", "path": path()}
        case _:
            known.append(new := path())
            return {"command": "rename", "old_path": path(), "new_path": new}


def compare(tool, seed):
    """Sends random commands to both tools. Directories differ in two ways: a file system keeps an empty one, and gives
    each a size that has nothing to do with its files."""
    choose, known = random.Random(seed), []
    tool.clear_all_memory()
    with tempfile.TemporaryDirectory() as scratch:
        files = BetaLocalFilesystemMemoryTool(scratch)
        for number in range(60):
            command = random_command(choose, known)
            expected = None
            try:
                expected = (files.call(command), False)
            except ToolError as error:
                expected = (str(error), True)
            except OSError:
                pass  # An error that the SDK has no sentence for.
            got = tool_call(tool, command)
            place = f"seed {seed}, command {number}: {command}\n{got}\ninstead of\n{expected}"
            assert got[1] if expected is None else (sizeless(got[0]), got[1]) == (sizeless(expected[0]), expected[1]), place
            for directory, _, _ in os.walk(files.memory_root, topdown=False):
                if pathlib.Path(directory) != files.memory_root and not os.listdir(directory):
                    os.rmdir(directory)


def sizeless(text):
    title, *rows = text.split("\n")
    if not title.startswith("Here're the files"):
        return text
    return [title, *(re.sub(r"^\S+", "", row) if at == 0 or row.endswith("/") else row for at, row in enumerate(rows))]


def main():
    url, seeds = sys.argv[1], [int(seed) for seed in sys.argv[2:]]
    with connect(url, os.environ.get("CONTEXT_API_KEY", "none")) as client:
        tool = ContextMemoryTool(client)
        for seed in seeds or SEEDS:
            compare(tool, seed)
        if not seeds:
            cases = scenario(tool, lambda commands: converse(tool, commands))
            for_async = AsyncContextMemoryTool(client)
            scenario(tool, lambda commands: asyncio.run(converse_async(for_async, commands)))
            limits(tool)
            versions(tool, client)
            concurrent(tool, client)
            for round in range(ROUNDS):
                done = race(tool, client)
                print(f"python: {AT_ONCE} agents in a race, {dict(done)}; no name is both a file and a directory")
            print(f"python: {cases} commands through both runners, and {AT_ONCE} concurrent agents that lose no edit")
        tool.clear_all_memory()
        # For check.ts.
        texts = {"🦀.md": "日本語\ntwo\r\n", "empty": "", "blank": " \u0085\n\t"}
        converse(tool, [{"command": "create", "path": f"/memories/from python/{name}", "file_text": text} for name, text in texts.items()])
    print(f"python: the same replies as the SDK's file system tool to {60 * len(seeds or SEEDS)} random commands")


if __name__ == "__main__":
    main()
