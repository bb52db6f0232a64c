"""Checks `ContextSessionStore` with the conformance helper of the Claude Agent SDK, with the SDK's functions over
stores, and with Claude Code itself against a scripted model: a session is resumed in an empty configuration. Then
concurrent batches.

    check_claude.py ADDRESS SCRATCH
"""

import asyncio
import json
import os
import random
import sys
import uuid

import fake_messages_api
from claude_agent_sdk import (
    ClaudeAgentOptions,
    InMemorySessionStore,
    ResultMessage,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    get_subagent_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
    list_subagents_from_store,
    project_key_for_directory,
    query,
    rename_session_via_store,
    tag_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance
from claude_session_store import ContextSessionStore
from service import Service

BATCHES = 64
SEEDS = range(6)
SUBPATHS = ["subagents/1", "subagents/1/2", "x"]


def store_of(service):
    return ContextSessionStore(service, prefix=f"claude-{uuid.uuid4().hex}")


def entry(number, **fields):
    message = {"role": "user", "content": f"Message {number}"}
    time = f"2026-11-24T10:{number // 60 % 60:02}:{number % 60:02}.000Z"
    return {"type": "user", "uuid": str(uuid.uuid4()), "timestamp": time, "message": message, "n": number, **fields}


async def the_functions_of_the_sdk_work_as_in_memory(service, scratch):
    """Each function of the SDK over stores has the same result on both stores."""
    seen = []
    session, agent = str(uuid.uuid4()), "agent-a1"
    key = {"project_key": project_key_for_directory(scratch), "session_id": session}
    lines = [entry(number, sessionId=session, cwd=scratch, gitBranch="main") for number in range(130)]
    for before, after in zip(lines, lines[1:]):
        after["parentUuid"] = before["uuid"]
    lines[0]["parentUuid"] = None
    for store in (store_of(service), InMemorySessionStore()):
        for start in range(0, len(lines), 40):
            await store.append(key, lines[start : start + 40])
        await store.append({**key, "subpath": f"subagents/{agent}"}, [{**line, "agentId": "a1", "isSidechain": True} for line in lines[:2]])
        await rename_session_via_store(store, session, "Retries", directory=scratch)
        await tag_session_via_store(store, session, "kept", directory=scratch)
        (info,) = await list_sessions_from_store(store, directory=scratch)
        messages = await get_session_messages_from_store(store, session, directory=scratch)
        agents = await list_subagents_from_store(store, session, directory=scratch)
        said = await get_subagent_messages_from_store(store, session, agents[0], directory=scratch)
        fork = await fork_session_via_store(store, session, directory=scratch, title="Fork")
        forked = await get_session_messages_from_store(store, fork.session_id, directory=scratch)
        titles = {info.custom_title for info in await list_sessions_from_store(store, directory=scratch)}
        await delete_session_via_store(store, session, directory=scratch)
        left = await list_sessions_from_store(store, directory=scratch)
        assert await store.load(key) is None and await store.list_subkeys(key) == []
        facts = (info.summary, info.custom_title, info.tag, info.first_prompt, info.git_branch, info.cwd, info.created_at)
        seen.append((facts, messages, agents, said, [message.message for message in forked], titles, len(left)))
    assert seen[0] == seen[1], seen
    assert seen[0][0][1:3] == ("Retries", "kept") and len(seen[0][1]) == len(lines) and seen[0][5] == {"Retries", "Fork"}, seen[0][0]


def story():
    """A model that calls no tool."""
    return
    yield


async def ask(store, scratch, prompt, answer, *, project="project", **options):
    """Runs Claude Code, in a configuration of its own. Returns the session and what the model was given."""
    home = os.path.join(scratch, uuid.uuid4().hex)
    project = os.path.join(scratch, project)
    os.makedirs(home)
    os.makedirs(project, exist_ok=True)
    with open(os.path.join(home, "requests.log"), "w+") as log:
        script = fake_messages_api.Script(story())
        script.farewell = answer
        api = fake_messages_api.serve(script, log)
        environment = {
            "HOME": home,
            "CLAUDE_CONFIG_DIR": os.path.join(home, ".claude"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{api.server_port}",
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        options = ClaudeAgentOptions(session_store=store, cwd=project, env=environment, **options)
        try:
            async for message in query(prompt=prompt, options=options):
                if isinstance(message, ResultMessage):
                    assert not message.is_error, message
                    session = message.session_id
        finally:
            api.shutdown()
        log.seek(0)
        requests = [json.loads(line)["body"] for line in log]
    given = [request["messages"] for request in requests if request.get("tools") and "messages" in request]
    return session, json.dumps(given[-1]), home


async def claude_code_resumes_on_another_machine(service, scratch):
    store = store_of(service)
    session, _, home = await ask(store, scratch, "The staging port is 6543.", "Noted: 6543.")
    key = {"project_key": project_key_for_directory(os.path.join(scratch, "project")), "session_id": session}
    stored = await store.load(key)
    assert [line["type"] for line in stored if line["type"] in ("user", "assistant")] == ["user", "assistant"], stored
    transcript = os.path.join(home, ".claude", "projects", key["project_key"], f"{session}.jsonl")
    with open(transcript) as lines:
        written = [json.loads(line) for line in lines]
    # Claude Code does not send the records of its requests to a store.
    sent = [line for line in written if not line["type"].startswith("api-request")]
    assert stored == sent, (stored, sent)
    # A new process, as on another machine.
    another = ContextSessionStore(Service(sys.argv[1]), prefix=store._prefix)
    resumed, given, _ = await ask(another, scratch, "Which port?", "6543.", resume=session)
    assert resumed == session and "The staging port is 6543." in given and "Noted: 6543." in given, given
    continued, given, home = await ask(another, scratch, "Sure?", "Yes.", continue_conversation=True)
    assert continued == session and "Which port?" in given, given
    stored = await store.load(key)
    ids = [line["uuid"] for line in stored if "uuid" in line]
    assert len(ids) == len(set(ids)), "an entry was stored twice"
    (info,) = await list_sessions_from_store(store, directory=os.path.join(scratch, "project"))
    assert info.session_id == session and info.first_prompt == "The staging port is 6543.", info
    # A transcript on the disk is imported into another store.
    imported = store_of(service)
    os.environ["CLAUDE_CONFIG_DIR"] = os.path.dirname(os.path.dirname(os.path.dirname(transcript)))
    await import_session_to_store(session, imported, directory=os.path.join(scratch, "project"))
    assert await imported.load(key) == written


async def any_json_is_kept(service):
    store = store_of(service)
    deep = "leaf"
    for _ in range(200):
        deep = {"in": [deep]}
    odd = [
        entry(0, text="\0 half \ud83d ünï \U0001f600", big=2**80, deep=deep, fractions=[1.0, 0.1, -0.0], none=None),
        entry(1, message={"role": "user", "content": [{"type": "image", "data": "A" * 1_500_000}]}),
        entry(2, message={"role": "user", "content": '"\\' * 400_000}),
        entry(3, message={"role": "user", "content": ""}),
        {"type": "mode"},
        {"type": "mode"},
    ]
    for key in (
        {"project_key": "p/../q", "session_id": "s"},
        {"project_key": "p", "session_id": "../q/s", "subpath": "subagents/a b"},
        {"project_key": "ü" * 200, "session_id": " s ", "subpath": "x" * 300},
        {"project_key": "ü" * 200, "session_id": " s ", "subpath": "x" * 301},
    ):
        await store.append(key, odd)
        loaded = await store.load(key)
        assert loaded == odd, key
        # For `==`, 1.0 is 1 and -0.0 is 0.0.
        assert json.dumps(loaded, sort_keys=True) == json.dumps(odd, sort_keys=True), key
    assert len(await store.list_subkeys({"project_key": "ü" * 200, "session_id": " s "})) == 2


async def an_entry_that_is_sent_again_is_stored_once(service):
    store, key = store_of(service), {"project_key": "p", "session_id": "s"}
    lines = [entry(number) for number in range(250)]
    await store.append(key, lines[:150])
    await store.append(key, lines[100:])
    await ContextSessionStore(service, prefix=store._prefix).append(key, [*lines[:3], lines[0]])
    assert await store.load(key) == lines
    # A marker without an id is not a repetition.
    await store.append(key, [{"type": "mode"}])
    await store.append(key, [{"type": "mode"}])
    assert await store.load(key) == [*lines, {"type": "mode"}, {"type": "mode"}]
    # Other processes may have stored entries at the same time, so that the known ones have more than one page.
    copies = lines[1:3] * 50
    store._transcript(key).append([(line["uuid"], line) for line in copies])
    await store.append(key, lines[:3])
    assert await store.load(key) == [*lines, {"type": "mode"}, {"type": "mode"}, *copies]


async def random_operations_equal_those_of_the_store_in_memory(service):
    # Appending and deleting return nothing, so they are not counted.
    compared = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        ours, theirs = store_of(service), InMemorySessionStore()
        for number in range(60):
            key = {"project_key": rng.choice("AB"), "session_id": rng.choice("st")}
            if rng.random() < 0.4:
                key["subpath"] = rng.choice(SUBPATHS)
            kind = rng.random()
            if kind < 0.5:
                lines = [entry(number, customTitle=f"Title {number}") for _ in range(rng.randint(1, 3))]
                mine, expected = await ours.append(key, lines), await theirs.append(key, lines)
            elif kind < 0.65:
                mine, expected = await ours.delete(key), await theirs.delete(key)
            elif kind < 0.8:
                mine, expected = await ours.load(key), await theirs.load(key)
                compared += 1
            elif kind < 0.9:
                mine, expected = sorted(await ours.list_subkeys(key)), sorted(await theirs.list_subkeys(key))
                compared += 1
            else:
                compared += 1
                listed = [await store.list_session_summaries(key["project_key"]) for store in (ours, theirs)]
                mine, expected = ({summary["session_id"]: summary["data"] for summary in one} for one in listed)
            assert mine == expected, f"seed {seed}: {key}\n{mine}\n{expected}"
        mine, expected = await whole(ours), await whole(theirs)
        assert mine == expected, f"seed {seed}, at the end:\n{mine}\n{expected}"
        compared += 1
    return compared


async def whole(store):
    """All that the random operations can have left in a store."""
    found = []
    for project in "AB":
        for session in "st":
            key = {"project_key": project, "session_id": session}
            found.append((key, await store.load(key), sorted(await store.list_subkeys(key))))
            for subpath in SUBPATHS:
                found.append((subpath, await store.load({**key, "subpath": subpath})))
        summaries = await store.list_session_summaries(project)
        found.append({summary["session_id"]: summary["data"] for summary in summaries})
    return found


async def concurrent_batches_lose_nothing(service):
    """64 stores, as in as many processes, append one batch each to 8 transcripts."""
    prefix = f"claude-{uuid.uuid4().hex}"
    stores = [ContextSessionStore(service, prefix) for _ in range(BATCHES)]
    keys = [{"project_key": "p", "session_id": f"s{batch % 4}", **({"subpath": "x"} if batch % 8 < 4 else {})} for batch in range(BATCHES)]
    batches = [[entry(number, batch=batch) for number in range(5)] for batch in range(BATCHES)]
    await asyncio.gather(*(store.append(key, batch) for store, key, batch in zip(stores, keys, batches)))
    for kind in range(8):
        stored = await stores[0].load(keys[kind])
        expected = [batch for number, batch in enumerate(batches) if number % 8 == kind]
        runs = [stored[start : start + 5] for start in range(0, len(stored), 5)]
        assert sorted(runs, key=lambda run: run[0]["batch"]) == expected, (kind, len(stored))
    assert sorted(session["session_id"] for session in await stores[0].list_sessions("p")) == ["s0", "s1", "s2", "s3"]
    for number in range(4):
        assert await stores[0].list_subkeys({"project_key": "p", "session_id": f"s{number}"}) == ["x"]
    summaries = await stores[0].list_session_summaries("p")
    assert len(summaries) == 4 and all(summary["data"]["first_prompt"] == "Message 0" for summary in summaries), summaries


async def concurrent_appends_all_reach_the_summary(service):
    prefix = f"claude-{uuid.uuid4().hex}"
    fields = {"customTitle": "custom_title", "aiTitle": "ai_title", "lastPrompt": "last_prompt", "summary": "summary_hint", "gitBranch": "git_branch"}
    for number in range(20):
        key = {"project_key": "p", "session_id": f"{number}"}
        stores = [ContextSessionStore(service, prefix) for _ in fields]
        await asyncio.gather(*(store.append(key, [{"type": "x", field: field}]) for store, field in zip(stores, fields)))
    summaries = await stores[0].list_session_summaries("p")
    assert len(summaries) == 20
    for summary in summaries:
        assert {name: summary["data"].get(name) for name in fields.values()} == {name: field for field, name in fields.items()}, summary


async def check(service, scratch):
    await run_session_store_conformance(lambda: store_of(service))
    await the_functions_of_the_sdk_work_as_in_memory(service, scratch)
    await any_json_is_kept(service)
    await an_entry_that_is_sent_again_is_stored_once(service)
    compared = await random_operations_equal_those_of_the_store_in_memory(service)
    await concurrent_batches_lose_nothing(service)
    await concurrent_appends_all_reach_the_summary(service)
    await claude_code_resumes_on_another_machine(service, scratch)
    print(
        "claude-agent-sdk: conformance, Claude Code resumed and continued a session, "
        f"{compared} results equal those of InMemorySessionStore; {BATCHES} concurrent batches lost nothing"
    )


if __name__ == "__main__":
    asyncio.run(check(Service(sys.argv[1]), os.path.realpath(sys.argv[2])))
