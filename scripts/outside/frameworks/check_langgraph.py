"""Runs LangGraph with `ContextStore`: a graph that remembers, random operations compared with LangGraph's own
InMemoryStore, searches with a query, and concurrent batches.

    check_langgraph.py ADDRESS
"""

import asyncio
import json
import math
import random
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph_store import ContextStore
from service import Service
from typing_extensions import TypedDict

BATCHES = 64
SEEDS = range(10)


def store_of(service, **options):
    return ContextStore(service, root=f"langgraph-{uuid.uuid4().hex}", **options)


# The example of LangGraph's documentation of long-term memory, without a model: its node stores or searches.
class State(TypedDict):
    said: str
    answer: str


class Context(TypedDict):
    user_id: str


async def remember(state: State, runtime: Runtime[Context]):
    namespace = ("memories", runtime.context["user_id"])
    await runtime.store.aput(namespace, str(uuid.uuid4()), {"data": state["said"]})
    return {}


async def recall(state: State, runtime: Runtime[Context]):
    namespace = ("memories", runtime.context["user_id"])
    memories = await runtime.store.asearch(namespace, query=state["said"], limit=3)
    return {"answer": "\n".join(memory.value["data"] for memory in memories)}


def graph_with(store, node):
    builder = StateGraph(State, context_schema=Context)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(store=store)


async def a_graph_remembers_across_runs(service):
    root = f"langgraph-{uuid.uuid4().hex}"
    remembering = graph_with(ContextStore(service, root=root), remember)
    for user, said in (("1", "My name is Bob"), ("1", "I keep two llamas in the garden"), ("2", "I keep one parrot")):
        await remembering.ainvoke({"said": said}, context={"user_id": user})
    # A second store with the same root has the same memory, and each user has their own.
    recalling = graph_with(ContextStore(service, root=root), recall)
    answer = (await recalling.ainvoke({"said": "llamas garden"}, context={"user_id": "1"}))["answer"]
    assert answer.split("\n")[0] == "I keep two llamas in the garden", answer
    answer = (await recalling.ainvoke({"said": "llamas parrot"}, context={"user_id": "2"}))["answer"]
    assert answer == "I keep one parrot", answer
    assert (await recalling.ainvoke({"said": "llamas"}, context={"user_id": "3"}))["answer"] == ""


def the_examples_of_base_store_work(service):
    # As in the documentation of BaseStore, GetOp, SearchOp, ListNamespacesOp and PutOp.
    store = store_of(service)
    store.put(("users", "123"), "prefs", {"theme": "dark"})
    assert store.get(("users", "123"), "prefs").value == {"theme": "dark"}
    assert store.get(("users", "123"), "other") is None
    store.put(("docs",), "doc1", {"text": "Python tutorial", "type": "report", "score": 4.98, "color": "red"})
    store.put(("docs",), "doc2", {"text": "TypeScript guide", "type": "report", "score": 5, "color": "blue"})
    assert [item.key for item in store.search(("docs",), query="python")] == ["doc1"]
    keys = lambda **filter: {item.key for item in store.search(("docs",), filter=filter)}
    assert keys(type="report") == {"doc1", "doc2"}
    assert keys(score={"$gt": 4.99}) == {"doc2"}
    assert keys(score={"$gte": 3.0}, color="red") == {"doc1"}
    assert keys(color={"$ne": "red"}) == {"doc2"}
    # The service refuses such values in its own filters.
    assert keys(score={"$lt": math.inf}) == {"doc1", "doc2"} and keys(score={"$gt": math.inf}) == set()
    assert keys(score={"$lt": 2**64, "$gt": False}) == {"doc1", "doc2"} and keys(score=-math.inf) == set()
    assert keys(color="re\0d") == set() and keys(**{"k" * 600: "red"}) == set()
    store.put(("a", "b", "c", "d", "e"), "k", {"x": 1})
    store.put(("a", "b", "d", "i"), "k", {"x": 1})
    store.put(("a", "b", "f"), "k", {"x": 1})
    store.put(("a", "c", "f"), "k", {"x": 1})
    assert store.list_namespaces(prefix=("a", "b"), max_depth=3) == [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]
    assert store.list_namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert store.list_namespaces(suffix=("f",), limit=1, offset=1) == [("a", "c", "f")]
    store.delete(("docs",), "doc1")
    store.delete(("docs",), "doc1")
    assert store.get(("docs",), "doc1") is None
    for namespace in ((), ("a.b",), ("",), ("langgraph",)):
        try:
            store.put(namespace, "k", {"x": 1})
        except InvalidNamespaceError:
            continue
        raise AssertionError(f"accepted: {namespace}")


LABELS = ["a", "b", "a/b", "a%2Fb", "ab", "é", "*", "A"]
KEYS = ["k", "k/1", "%", "K", "a"]
WORDS = ["red", "Red", "r%d", "", "5", "ünï"]
SCALARS = [*WORDS, 0, 5, 5.5, -3, 2**62, None]


def any_namespace(random, least=1):
    return tuple(random.choice(LABELS) for _ in range(random.randint(least, 3)))


def any_value(random):
    value = {"s": random.choice(WORDS), "n": random.choice([-3, 0, 5, 5.5, 2**62])}
    if random.random() < 0.7:
        value["any"] = random.choice([*SCALARS, ["red", 5], [], {"in": "red", "deep": {"er": 5}}, {}])
    if random.random() < 0.3:
        value["odd key.é"] = random.choice(SCALARS)
    return value


def any_filter(random):
    kind = random.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return {"n": {random.choice(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"]): random.choice([0, 5, 5.5, 2**62])}}
    if kind == 2:
        return {"any": {random.choice(["$eq", "$ne"]): random.choice(SCALARS)}}
    if kind == 3:
        return {"any": random.choice([["red", 5], [], {"in": "red"}, {"deep": {"er": 5}}, {"in": None}, {}])}
    if kind == 4:
        return {"odd key.é": random.choice(SCALARS)}
    if kind == 5:
        return {"n": {"$gte": 0, random.choice(["$lt", "$ne"]): random.choice([5, 6])}, "s": random.choice([*WORDS, {"$ne": "red"}])}
    return {random.choice(["s", "any", "absent"]): random.choice(SCALARS)}


def any_operation(random):
    kind = random.random()
    if kind < 0.5:
        return PutOp(any_namespace(random), random.choice(KEYS), any_value(random) if random.random() < 0.8 else None)
    if kind < 0.65:
        return GetOp(any_namespace(random), random.choice(KEYS))
    if kind < 0.9:
        return SearchOp(any_namespace(random, 0), any_filter(random), limit=1000)
    conditions = [MatchCondition(random.choice(["prefix", "suffix"]), any_namespace(random)) for _ in range(random.randint(0, 2))]
    return ListNamespacesOp(tuple(conditions) or None, random.choice([None, 1, 2]), random.choice([1, 1000]))


def shown(result):
    """A result without times, and without the order of a search, which the stores may choose. Namespaces are sorted by
    both stores, so their order counts."""
    if isinstance(result, list):
        each = list(map(shown, result))
        return sorted(each, key=repr) if any(hasattr(item, "value") for item in result) else each
    return (result.namespace, result.key, json.dumps(result.value, sort_keys=True)) if hasattr(result, "value") else result


def results_equal_those_of_the_in_memory_store(service):
    compared = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        ours, theirs = store_of(service), InMemoryStore()
        batches = [[any_operation(rng) for _ in range(rng.randint(1, 12))] for _ in range(25)]
        # At the end, all that is left.
        for operations in [*batches, [SearchOp((), limit=1000), ListNamespacesOp(limit=1000)]]:
            pairs = zip(operations, ours.batch(operations), batch_in_memory(theirs, operations), strict=True)
            for operation, mine, expected in pairs:
                assert shown(mine) == shown(expected), f"seed {seed}: {operation}\n{shown(mine)}\n{shown(expected)}"
                compared += not isinstance(operation, PutOp)
    return compared


def batch_in_memory(store, operations):
    """The results of InMemoryStore without empty namespaces. It lists every namespace that was ever read."""
    results = []
    for operation in operations:
        for namespace in [namespace for namespace, items in store._data.items() if not items]:
            del store._data[namespace]
        results.append(None if isinstance(operation, PutOp) else store.batch([operation])[0])
    store.batch([operation for operation in operations if isinstance(operation, PutOp)])
    return results


def pages_of_a_search_neither_repeat_nor_skip(service):
    store = store_of(service)
    store.batch([PutOp(("pages",), f"{number}", {"n": number, "text": "a page of llamas"}) for number in range(130)])
    for query in (None, "llamas"):
        for wanted in ({"n": {"$gte": 10}}, {"n": {"$ne": 3}}):
            pages = [store.search(("pages",), filter=wanted, query=query, limit=30, offset=offset) for offset in range(0, 150, 30)]
            found = [item.key for page in pages for item in page]
            expected = {f"{number}" for number in range(130) if (number >= 10 if "$gte" in wanted["n"] else number != 3)}
            assert len(found) == len(set(found)) == len(expected) and set(found) == expected, (query, wanted, len(found))
    assert store.search(("pages",), limit=0) == []


def a_query_sees_the_chosen_fields(service):
    store = store_of(service, fields=["text"])
    store.put(("docs",), "plain", {"text": "A llama in spring", "secret": "walrus"})
    store.put(("docs",), "chosen", {"text": "nothing", "notes": [{"body": "An alpaca"}, {"body": "in autumn"}]}, index=["notes[*].body"])
    store.put(("docs",), "hidden", {"text": "A llama in winter"}, index=False)
    found = lambda query: {item.key for item in store.search(("docs",), query=query)}
    assert found("llama") == {"plain"}, found("llama")
    assert "plain" not in found("walrus")
    assert found("alpaca") == {"chosen"}
    assert store.get(("docs",), "hidden").value == {"text": "A llama in winter"}
    (hit,) = store.search(("docs",), query="llama")
    assert 0 < hit.score <= 1, hit
    # Only below the given namespace.
    store.put(("docs2",), "other", {"text": "A llama elsewhere"})
    assert found("llama") == {"plain"}
    store.put(("docs",), "plain", {"text": "A vicuña"})
    assert found("llama") == set()
    # Queries that the service refuses: a long one is cut, and a blank one lists the items.
    assert found("vicuña " * 2_000) == {"plain"}
    assert found(" \0") == {"plain", "chosen", "hidden"}
    # Nothing that a search could find is left of these texts.
    for number, text in enumerate(("\x85", " \x85 ", " " * 100_000 + "A llama")):
        store.put(("docs",), f"blank {number}", {"text": text})
    assert not {key for key in found("searchable") | found("llama") if key.startswith("blank")}


async def concurrent_batches_lose_nothing(service):
    store = store_of(service)
    batches = [
        [PutOp(("storm", f"{batch}"), f"{number}", {"batch": batch, "number": number}) for number in range(10)]
        + [PutOp(("storm", "shared"), "last", {"batch": batch}), PutOp(("storm", "counted"), f"{batch}", {"batch": batch})]
        for batch in range(BATCHES)
    ]
    await asyncio.gather(*(store.abatch(batch) for batch in batches))
    for batch in range(BATCHES):
        items = await store.asearch(("storm", f"{batch}"), limit=100)
        assert sorted(item.value["number"] for item in items) == list(range(10)), (batch, items)
        assert {item.value["batch"] for item in items} == {batch}
    counted = await store.asearch(("storm", "counted"), limit=1000)
    assert sorted(item.value["batch"] for item in counted) == list(range(BATCHES)), len(counted)
    (shared,) = await store.asearch(("storm", "shared"))
    assert shared.value["batch"] in range(BATCHES)
    assert len(await store.alist_namespaces(prefix=("storm",), limit=1000)) == BATCHES + 2


def threads_that_create_and_delete_one_item_agree(service):
    store = store_of(service)

    def churn(number):
        store.put(("churn",), "one", {"number": number})
        if number % 2:
            store.delete(("churn",), "one")

    with ThreadPoolExecutor(BATCHES) as threads:
        list(threads.map(churn, range(BATCHES * 4)))
    assert len(store.search(("churn",))) <= 1
    store.put(("churn",), "one", {"number": "last"})
    assert store.get(("churn",), "one").value == {"number": "last"}


def main():
    service = Service(sys.argv[1])
    assert isinstance(ContextStore(service), BaseStore)
    asyncio.run(a_graph_remembers_across_runs(service))
    the_examples_of_base_store_work(service)
    compared = results_equal_those_of_the_in_memory_store(service)
    pages_of_a_search_neither_repeat_nor_skip(service)
    a_query_sees_the_chosen_fields(service)
    asyncio.run(concurrent_batches_lose_nothing(service))
    threads_that_create_and_delete_one_item_agree(service)
    print(f"langgraph: {compared} results equal those of InMemoryStore; {BATCHES} concurrent batches lost nothing")


if __name__ == "__main__":
    main()
