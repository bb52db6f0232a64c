"""Cases that the adapters were not developed with: other seeds, and parts of the frameworks that the other checks do
not use.

    held_out.py ADDRESS SCRATCH
"""

import asyncio
import json
import os
import sys
import uuid

import check_claude
import check_langgraph
import check_openai
import fake_messages_api
from agents import Agent, ModelResponse, Runner, SQLiteSession, Usage, set_tracing_disabled
from agents.extensions.memory import EncryptedSession
from agents.items import TResponseStreamEvent
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, list_sessions_from_store, project_key_for_directory
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode
from langgraph.store.base import BaseStore
from openai.types.responses import Response, ResponseCompletedEvent
from service import Service
from typing_extensions import Annotated

SEEDS = range(1000, 1004)


# --- LangGraph


@tool
def remember(key: str, text: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Remembers a text."""
    store.put(("notes", "ünï"), key, {"text": text})
    return "noted"


@tool
def notes(words: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Finds texts."""
    return "; ".join(item.value["text"] for item in store.search(("notes",), query=words))


def tools_of_a_graph_get_the_store(service):
    store = check_langgraph.store_of(service)
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([remember, notes]))
    builder.add_edge(START, "tools")
    builder.add_edge("tools", END)
    graph = builder.compile(store=store)

    def call(name, **arguments):
        message = AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": uuid.uuid4().hex, "type": "tool_call"}])
        return graph.invoke({"messages": [message]})["messages"][-1].content

    assert call("remember", key="a/ b", text="The walrus sleeps until noon") == "noted"
    assert call("remember", key="c", text="The llama does not") == "noted"
    assert call("notes", words="walrus") == "The walrus sleeps until noon"
    assert store.list_namespaces() == [("notes", "ünï")]


async def tasks_of_one_loop_share_a_store(service):
    store = check_langgraph.store_of(service)

    async def work(number):
        for step in range(5):
            await store.aput(("tasks", f"{number % 7}"), f"{number}", {"step": step})
            assert (await store.aget(("tasks", f"{number % 7}"), f"{number}")).value == {"step": step}
        if number % 3 == 0:
            await store.adelete(("tasks", f"{number % 7}"), f"{number}")

    await asyncio.gather(*(work(number) for number in range(64)))
    left = await store.asearch(("tasks",), limit=100, filter={"step": 4})
    assert {item.key for item in left} == {f"{number}" for number in range(64) if number % 3}
    first = left[0]
    await store.aput(first.namespace, first.key, {"step": "later"})
    later = await store.aget(first.namespace, first.key)
    assert later.created_at == first.created_at and later.updated_at > first.updated_at


# --- OpenAI Agents


class Streaming(check_openai.Scripted):
    async def stream_response(self, system_instructions, input, *rest, **more) -> TResponseStreamEvent:
        reply: ModelResponse = await self.get_response(system_instructions, input)
        fields = {"id": "r", "created_at": 0, "model": "m", "object": "response", "tools": [], "tool_choice": "none", "parallel_tool_calls": False}
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=Response(output=reply.output, **fields))


async def streamed_runs_and_handoffs_are_remembered(service):
    seen = []
    for session in (check_openai.session_of(service), SQLiteSession("theirs")):
        second = Agent(name="Second", model=Streaming(check_openai.says("From the second"), check_openai.says("Bye")))
        model = Streaming(check_openai.calls("transfer_to_second", "{}"), check_openai.says("Again"))
        first = Agent(name="First", model=model, handoffs=[second])
        for said in ("Hand over", "And you?"):
            result = Runner.run_streamed(first, said, session=session)
            async for _ in result.stream_events():
                pass
        seen.append((model.given, second.model.given, await session.get_items()))
    assert seen[0] == seen[1], seen
    assert len(seen[0][2]) >= 6, seen[0][2]


async def an_encrypted_session_lies_on_ours(service):
    below = check_openai.session_of(service)
    session = EncryptedSession(session_id=below.session_id, underlying_session=below, encryption_key="a key", ttl=600)
    await session.add_items([{"role": "user", "content": "secret"}, {"role": "assistant", "content": "kept"}])
    assert [item["content"] for item in await session.get_items()] == ["secret", "kept"]
    assert "secret" not in json.dumps(await below.get_items())
    assert (await session.pop_item())["content"] == "kept"


# --- Claude


async def a_client_with_many_turns_and_a_fork(service, scratch):
    store = check_claude.store_of(service)
    home, project = os.path.join(scratch, "held-out"), os.path.join(scratch, "held-out-project")
    os.makedirs(home)
    os.makedirs(project)
    with open(os.path.join(home, "requests.log"), "w") as log:
        script = fake_messages_api.Script(check_claude.story())
        script.farewell = "Understood."
        api = fake_messages_api.serve(script, log)
        environment = {
            "HOME": home,
            "CLAUDE_CONFIG_DIR": os.path.join(home, ".claude"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{api.server_port}",
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        options = ClaudeAgentOptions(session_store=store, session_store_flush="eager", cwd=project, env=environment)
        try:
            async with ClaudeSDKClient(options) as client:
                for said in ("One fish", "Two fish", "Two fish"):
                    await client.query(said)
                    async for message in client.receive_response():
                        if isinstance(message, ResultMessage):
                            assert not message.is_error, message
                            session = message.session_id
        finally:
            api.shutdown()
    key = {"project_key": project_key_for_directory(project), "session_id": session}
    said = [line["message"]["content"] for line in await store.load(key) if line["type"] == "user"]
    assert said == ["One fish", "Two fish", "Two fish"], said
    options = {"project": "held-out-project", "resume": session, "fork_session": True}
    forked, given, _ = await check_claude.ask(store, scratch, "Red fish", "Yes.", **options)
    assert forked != session and given.count("Two fish") == 2 and "Red fish" in given, given
    listed = await list_sessions_from_store(store, directory=project)
    assert {info.session_id for info in listed} == {session, forked}, listed
    assert "Red fish" not in json.dumps(await store.load(key))
    # Another project does not have it.
    assert await list_sessions_from_store(store, directory=scratch) == []


async def check(service, scratch):
    check_langgraph.SEEDS = check_openai.SEEDS = check_claude.SEEDS = SEEDS
    compared = check_langgraph.results_equal_those_of_the_in_memory_store(service)
    compared += await check_openai.random_operations_equal_those_of_the_sqlite_session(service)
    compared += await check_claude.random_operations_equal_those_of_the_store_in_memory(service)
    tools_of_a_graph_get_the_store(service)
    await tasks_of_one_loop_share_a_store(service)
    await streamed_runs_and_handoffs_are_remembered(service)
    await an_encrypted_session_lies_on_ours(service)
    await a_client_with_many_turns_and_a_fork(service, scratch)
    print(f"held out: {compared} results equal those of the frameworks' own stores")


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(check(Service(sys.argv[1]), os.path.realpath(sys.argv[2])))
