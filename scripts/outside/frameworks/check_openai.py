"""Runs agents of the OpenAI Agents SDK, with a model that is a script, on `ContextSession`. The SDK's own SQLiteSession
must hold the same. Then concurrent batches.

    check_openai.py ADDRESS
"""

import asyncio
import json
import random
import sys
import uuid

from agents import Agent, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents.memory import Session, SessionSettings
from agents.models.interface import Model
from context.v1 import context_pb2
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from openai_session import ContextSession
from service import Service
from transcript import pages

BATCHES = 64
SEEDS = range(10)


class Scripted(Model):
    """A model that gives the next output of a script, and records its input."""

    def __init__(self, *outputs):
        self.outputs, self.given = list(outputs), []

    async def get_response(self, system_instructions, input, *_, **__):
        self.given.append(list(input) if isinstance(input, list) else [{"role": "user", "content": input}])
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


def says(text):
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    return ResponseOutputMessage(id=f"msg_{text[:4]}", type="message", role="assistant", status="completed", content=content)


def calls(name, arguments):
    return ResponseFunctionToolCall(id="fc_1", call_id="call_1", type="function_call", name=name, arguments=arguments)


@function_tool
def weather(city: str) -> str:
    return f"Sunny in {city}\0"


def session_of(service, **options):
    return ContextSession(uuid.uuid4().hex, service, **options)


async def talk(session):
    """The example of the SDK's documentation of sessions, and a call of a tool. Returns what the model was given."""
    model = Scripted(
        says("San Francisco"), says("California"), calls("weather", '{"city": "Oakland"}'), says("Sunny"), says("Sunny"), says("Sunny")
    )
    agent = Agent(name="Assistant", instructions="Reply very concisely.", model=model, tools=[weather])
    for said in ("What city is the Golden Gate Bridge in?", "What state is it in?", "And the weather?", "Sure?", "Sure?"):
        await Runner.run(agent, said, session=session)
    return model.given


async def a_conversation_is_remembered(service):
    session, theirs = session_of(service), SQLiteSession("theirs")
    given = await talk(session)
    assert given == await talk(theirs)
    assert [item.get("content") for item in given[1]][0] == "What city is the Golden Gate Bridge in?", given[1]
    items = await session.get_items()
    assert items == await theirs.get_items() and len(items) == 12, items
    # A second session object with the same id, on another connection, continues the session.
    later = ContextSession(session.session_id, Service(sys.argv[1]))
    model = Scripted(says("Yes"))
    await Runner.run(Agent(name="Assistant", model=model), "Still there?", session=later)
    assert model.given[0][:-1] == items
    # A correction, as in the documentation: take back the answer and the question.
    await later.pop_item()
    question = await later.pop_item()
    assert question["content"] == "Still there?", question
    assert await session.get_items() == items


async def the_limit_of_the_settings_holds(service):
    session = session_of(service, session_settings=SessionSettings(limit=2))
    await session.add_items([{"role": "user", "content": f"{number}"} for number in range(5)])
    assert [item["content"] for item in await session.get_items()] == ["3", "4"]
    assert [item["content"] for item in await session.get_items(4)] == ["1", "2", "3", "4"]
    assert await session.get_items(0) == await session.get_items(-1) == []
    model = Scripted(says("ok"))
    await Runner.run(Agent(name="Assistant", model=model), "5", session=session)
    assert [item["content"] for item in model.given[0]] == ["3", "4", "5"], model.given


def any_item(random):
    return random.choice(
        [
            {"role": "user", "content": random.choice(["same", "same", "", " ", "\0", " \0 ", " " * 100_000 + "x", "ünï\U0001f600", "half \ud83d"])},
            {"role": "assistant", "content": [{"type": "output_text", "text": "same", "annotations": []}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "big": 2**80, "none": None, "f": 1.0},
            {"type": "function_call_output", "call_id": "c", "output": random.choice(["", "same", "x" * 900_000, '"' * 450_000])},
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:" + "A" * random.choice([1, 400_000, 1_700_000])}]},
        ]
    )


def assert_same(mine, expected, seed):
    # For `==`, 1.0 is 1: the JSON shows the difference.
    same = mine == expected and json.dumps(mine, sort_keys=True) == json.dumps(expected, sort_keys=True)
    assert same, f"seed {seed}: {str(mine)[:500]}\n{str(expected)[:500]}"


async def random_operations_equal_those_of_the_sqlite_session(service):
    # Adding and clearing return nothing, so they are not counted.
    compared = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        ours, theirs = session_of(service), SQLiteSession("theirs")
        for _ in range(30):
            kind = rng.random()
            if kind < 0.4:
                items = [any_item(rng) for _ in range(rng.choice([0, 1, 2, 3]))]
                call = lambda session: session.add_items(items)
            elif kind < 0.65:
                limit = rng.choice([None, 0, 1, 2, 5])
                call = lambda session: session.get_items(limit)
                compared += 1
            elif kind < 0.95:
                call = lambda session: session.pop_item()
                compared += 1
            else:
                call = lambda session: session.clear_session()
            mine, expected = await call(ours), await call(theirs)
            assert_same(mine, expected, seed)
        assert_same(await ours.get_items(), await theirs.get_items(), seed)
        compared += 1
    return compared


async def a_long_session_keeps_its_order(service):
    session = session_of(service)
    await session.add_items([{"role": "user", "content": f"{number}"} for number in range(250)])
    assert [item["content"] for item in await session.get_items()] == [f"{number}" for number in range(250)]
    assert [item["content"] for item in await session.get_items(120)] == [f"{number}" for number in range(130, 250)]


async def deletions_between_pages_hide_no_entry(service):
    session = session_of(service)
    await session.add_items([{"role": "user", "content": f"{number}"} for number in range(50)])
    only = context_pb2.Filter(thread_id=f"openai-agents/{session.session_id}")
    stored = [hit.id for hit in pages(service, only)]
    found = []
    for hit in pages(service, only, 10):
        found.append(hit.id)
        if len(found) in (10, 19, 28):
            for _ in range(5):
                await session.pop_item()
    assert found == stored, found


async def a_cancelled_write_is_over_when_the_caller_goes_on(service):
    session = session_of(service)
    for number in range(20):
        adding = asyncio.create_task(session.add_items([{"role": "user", "content": f"{number}"}]))
        await asyncio.sleep(0)
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        before = await session.get_items()
        await session.add_items([{"role": "user", "content": "after"}])
        assert await session.get_items() == [*before, {"role": "user", "content": "after"}]


async def concurrent_batches_lose_nothing(service):
    name = uuid.uuid4().hex
    sessions = [ContextSession(name, service) for _ in range(BATCHES)]
    batches = [[{"role": "user", "content": f"{batch}/{number}"} for number in range(5)] for batch in range(BATCHES)]
    await asyncio.gather(*(session.add_items(batch) for session, batch in zip(sessions, batches)))
    stored = [item["content"] for item in await sessions[0].get_items()]
    assert len(stored) == BATCHES * 5, len(stored)
    for start in range(0, len(stored), 5):
        batch = stored[start].split("/")[0]
        assert stored[start : start + 5] == [f"{batch}/{number}" for number in range(5)], stored[start : start + 5]
    popped = await asyncio.gather(*(session.pop_item() for session in sessions))
    assert sorted(item["content"] for item in popped) == sorted(stored[-BATCHES:])
    assert [item["content"] for item in await sessions[0].get_items()] == stored[:-BATCHES]


async def check(service):
    assert isinstance(session_of(service), Session)
    await a_conversation_is_remembered(service)
    await the_limit_of_the_settings_holds(service)
    compared = await random_operations_equal_those_of_the_sqlite_session(service)
    await a_long_session_keeps_its_order(service)
    await deletions_between_pages_hide_no_entry(service)
    await a_cancelled_write_is_over_when_the_caller_goes_on(service)
    await concurrent_batches_lose_nothing(service)
    print(f"openai-agents: {compared} results equal those of SQLiteSession; {BATCHES} concurrent batches lost nothing")


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(check(Service(sys.argv[1])))
