"""Kills the service again and again while 64 concurrent batches of each adapter arrive. Nothing may be lost, and
nothing stored twice.

    check_killed.py SERVICE DIRECTORY
"""

import asyncio
import pathlib
import signal
import sys
import threading

import follow
from claude_session_store import ContextSessionStore
from langgraph.store.base import PutOp
from langgraph_store import ContextStore
from openai_session import ContextSession
from service import Service

BATCHES = 64
SIZE = 10
KILLS = 8


async def fill(address, killed):
    service = Service(address)
    store, transcripts = ContextStore(service), ContextSessionStore(service)
    key = {"project_key": "p", "session_id": "s"}
    since, asked, happened, kills = 0, 0, 0, threading.Semaphore(0)

    def kill():
        nonlocal happened
        for _ in range(KILLS):
            kills.acquire()
            killed()
            happened += 1

    # A daemon, so that the program ends when a call fails.
    killing = threading.Thread(target=kill, daemon=True)
    killing.start()

    async def counted(call):
        nonlocal since, asked
        await call
        # The next kill comes after some calls since the service was ready again, so that no call meets too many kills.
        since = since + 1 if asked == happened else 0
        if since >= BATCHES * 3 // (KILLS + 1) and asked < KILLS:
            since, asked = 0, asked + 1
            kills.release()

    def batch(number):
        entries = [{"type": "user", "uuid": f"{number}/{position}"} for position in range(SIZE)]
        items = [{"role": "user", "content": f"{number}/{position}"} for position in range(SIZE)]
        yield transcripts.append(key, entries)
        yield ContextSession("one", service).add_items(items)
        yield store.abatch([PutOp(("n", f"{number}"), f"{position}", {"n": position}) for position in range(SIZE)])

    batches = BATCHES
    await asyncio.gather(*(counted(call) for number in range(batches) for call in batch(number)))
    # Kills may lag behind the batches. More batches follow, so that each kill meets some.
    while happened < KILLS and killing.is_alive():
        await asyncio.gather(*(counted(call) for call in batch(batches)))
        batches += 1
    killing.join()
    # An error in the thread ends only the thread.
    assert happened == KILLS, f"{happened} of {KILLS} kills happened"
    expected = sorted(f"{number}/{position}" for number in range(batches) for position in range(SIZE))
    stored = {
        "claude-agent-sdk": [entry["uuid"] for entry in await transcripts.load(key)],
        "openai-agents": [item["content"] for item in await ContextSession("one", service).get_items()],
        "langgraph": [f"{item.namespace[1]}/{item.key}" for item in await store.asearch(("n",), limit=10_000)],
    }
    for name, found in stored.items():
        assert sorted(found) == expected, f"{name}: {len(found)} stored, {len(set(expected) - set(found))} lost"
    return batches


def main():
    binary, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    directory.mkdir()
    server = follow.Service(binary, directory)
    server.start()
    try:
        batches = asyncio.run(fill(server.address, lambda: server.restart(signal.SIGKILL)))
    finally:
        server.end(signal.SIGTERM)
    print(f"frameworks: {batches} batches of each adapter, {BATCHES} of them concurrent, lost nothing in {KILLS} kills of the service")


if __name__ == "__main__":
    main()
