// Runs LangGraph for TypeScript with `ContextStore`: a graph that remembers, random operations compared with
// LangGraph's own InMemoryStore, searches with a query, concurrent batches, and items that Python wrote.
//
//   check_langgraph.mjs URL PYTHON ADDRESS

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";

import { Annotation, END, START, StateGraph } from "@langchain/langgraph";
import { BaseStore, InMemoryStore, InvalidNamespaceError } from "@langchain/langgraph-checkpoint";

import { ContextStore } from "./build/langgraph_store.js";
import { connect } from "./build/service.js";

const BATCHES = 64;
const SEEDS = 16;
const [url, python, address] = process.argv.slice(2);
const service = connect(url);
const storeOf = (options) => new ContextStore(service, { root: `langgraph-${randomUUID()}`, ...options });
const keysOf = (items) => items.map((item) => item.key).sort();

// --- The example of LangGraph's documentation of long-term memory, without a model: its node stores or searches.

const State = Annotation.Root({ said: Annotation, answer: Annotation });

function graphWith(store, node) {
  return new StateGraph(State).addNode("node", node).addEdge(START, "node").addEdge("node", END).compile({ store });
}

async function remember({ said }, { store, configurable }) {
  await store.put(["memories", configurable.user], randomUUID(), { data: said });
  return {};
}

async function recall({ said }, { store, configurable }) {
  const memories = await store.search(["memories", configurable.user], { query: said, limit: 3 });
  return { answer: memories.map((memory) => memory.value.data).join("\n") };
}

async function aGraphRemembersAcrossRuns() {
  const root = `langgraph-${randomUUID()}`;
  const remembering = graphWith(new ContextStore(service, { root }), remember);
  for (const [user, said] of [["1", "My name is Bob"], ["1", "I keep two llamas in the garden"], ["2", "I keep one parrot"]]) {
    await remembering.invoke({ said }, { configurable: { user } });
  }
  // A second store with the same root has the same memory, and each user has their own.
  const recalling = graphWith(new ContextStore(connect(url), { root }), recall);
  const answer = async (said, user) => (await recalling.invoke({ said }, { configurable: { user } })).answer;
  assert.equal((await answer("llamas garden", "1")).split("\n")[0], "I keep two llamas in the garden");
  assert.equal(await answer("llamas parrot", "2"), "I keep one parrot");
  assert.equal(await answer("llamas", "3"), "");
}

async function theExamplesOfBaseStoreWork() {
  const store = storeOf();
  await store.put(["users", "123"], "prefs", { theme: "dark" });
  const item = await store.get(["users", "123"], "prefs");
  assert.deepEqual([item.value, item.namespace, item.key], [{ theme: "dark" }, ["users", "123"], "prefs"]);
  assert(Math.abs(Date.now() - item.updatedAt.getTime()) < 60_000 && item.createdAt <= item.updatedAt);
  assert.equal(await store.get(["users", "123"], "other"), null);
  await store.put(["docs"], "doc1", { text: "Python tutorial", type: "report", score: 4.98, color: "red" });
  await store.put(["docs"], "doc2", { text: "TypeScript guide", type: "report", score: 5, color: "blue" });
  const keys = async (filter) => keysOf(await store.search(["docs"], { filter }));
  assert.deepEqual(keysOf(await store.search(["docs"], { query: "python" })), ["doc1"]);
  assert.deepEqual(await keys({ type: "report" }), ["doc1", "doc2"]);
  assert.deepEqual(await keys({ score: { $gt: 4.99 } }), ["doc2"]);
  assert.deepEqual(await keys({ score: { $gte: 3.0 }, color: "red" }), ["doc1"]);
  assert.deepEqual(await keys({ color: { $ne: "red" } }), ["doc2"]);
  // The service refuses such values in its own filters.
  for (const filter of [{ score: Infinity }, { score: 2 ** 63 }, { color: "re\0d" }, { ["k".repeat(600)]: "red" }]) assert.deepEqual(await keys(filter), []);
  for (const namespace of [["a", "b", "c", "d", "e"], ["a", "b", "d", "i"], ["a", "b", "f"], ["a", "c", "f"]]) await store.put(namespace, "k", { x: 1 });
  assert.deepEqual(await store.listNamespaces({ prefix: ["a", "b"], maxDepth: 3 }), [["a", "b", "c"], ["a", "b", "d"], ["a", "b", "f"]]);
  assert.deepEqual(await store.listNamespaces({ prefix: ["a", "*", "f"] }), [["a", "b", "f"], ["a", "c", "f"]]);
  assert.deepEqual(await store.listNamespaces({ suffix: ["f"], limit: 1, offset: 1 }), [["a", "c", "f"]]);
  await store.delete(["docs"], "doc1");
  await store.delete(["docs"], "doc1");
  assert.equal(await store.get(["docs"], "doc1"), null);
  for (const namespace of [[], ["a.b"], [""], ["langgraph"]]) {
    await assert.rejects(store.put(namespace, "k", { x: 1 }), InvalidNamespaceError);
  }
}

// --- Random operations

function randomFrom(seed) {
  const next = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
  return { next, below: (limit) => Math.floor(next() * limit), one: (list) => list[Math.floor(next() * list.length)] };
}

const LABELS = ["a", "b", "a/b", "a%2Fb", "ab", "é", "*", "A"];
const KEYS = ["k", "k/1", "%", "K", "a"];
const WORDS = ["red", "Red", "r%d", "", "5", "ünï"];
const SCALARS = [...WORDS, 0, 5, 5.5, -3, 2 ** 62, null, true, false];
const OPERATORS = ["$gt", "$gte", "$lt", "$lte", "$eq", "$ne", "$in", "$nin"];

const anyNamespace = (random, least = 1) => Array.from({ length: least + random.below(4 - least) }, () => random.one(LABELS));

function anyValue(random) {
  const value = { s: random.one(WORDS), n: random.one([-3, 0, 5, 5.5, 2 ** 62]) };
  if (random.next() < 0.7) value.any = random.one([...SCALARS, ["red", 5], [], [5], { in: "red", deep: { er: 5 } }, {}]);
  if (random.next() < 0.3) value["odd key.é"] = random.one(SCALARS);
  return value;
}

function anyOperand(random, operator) {
  return operator.endsWith("in") ? random.one([[], [5, "red"], [null, 0], "red", SCALARS]) : random.one(SCALARS);
}

function anyFilter(random) {
  const operators = () => {
    const names = [random.one(OPERATORS), random.one(OPERATORS)].slice(0, 1 + random.below(2));
    return Object.fromEntries(names.map((name) => [name, anyOperand(random, name)]));
  };
  switch (random.below(6)) {
    case 0:
      return undefined;
    case 1:
      return { n: operators() };
    case 2:
      return { [random.one(["any", "odd key.é", "s"])]: operators() };
    case 3:
      return { any: random.one([["red", 5], [], { in: "red" }, { $eq: 5, other: 1 }, {}]) };
    case 4:
      return { n: operators(), s: random.one(WORDS) };
    default:
      return { [random.one(["s", "any", "absent", "odd key.é"])]: random.one(SCALARS) };
  }
}

function anyOperation(random) {
  const kind = random.next();
  if (kind < 0.5) return { namespace: anyNamespace(random), key: random.one(KEYS), value: random.next() < 0.8 ? anyValue(random) : null };
  if (kind < 0.65) return { namespace: anyNamespace(random), key: random.one(KEYS) };
  if (kind < 0.9) return { namespacePrefix: anyNamespace(random, 0), filter: anyFilter(random), limit: 1000, offset: 0 };
  const matchConditions = Array.from({ length: random.below(3) }, () => ({ matchType: random.one(["prefix", "suffix"]), path: anyNamespace(random) }));
  return { matchConditions, maxDepth: random.one([undefined, 1, 2]), limit: random.one([1, 1000]), offset: random.below(2) };
}

/** A result without times, and without the order of a search, which the stores may choose. */
function shown(result) {
  if (Array.isArray(result)) return result.map((one) => (Array.isArray(one) ? one : shown(one))).sort((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
  return result && JSON.stringify([result.namespace, result.key, Object.entries(result.value).sort()]);
}

/**
 * The results of InMemoryStore. Empty namespaces are removed first, because InMemoryStore lists every namespace that
 * was ever written. Reads are shown before the writes of the batch, because the writes change the returned items.
 */
async function inMemory(store, operations) {
  for (const [namespace, items] of store.data) if (items.size === 0) store.data.delete(namespace);
  const results = [];
  for (const operation of operations) results.push("value" in operation ? null : shown((await store.batch([operation]))[0]));
  await store.batch(structuredClone(operations.filter((operation) => "value" in operation)));
  return results;
}

async function resultsEqualThoseOfTheInMemoryStore() {
  let compared = 0;
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = randomFrom(seed);
    const [ours, theirs] = [storeOf(), new InMemoryStore()];
    for (let batch = 0; batch < 25; batch++) {
      const operations = Array.from({ length: 1 + random.below(12) }, () => anyOperation(random));
      const expected = await inMemory(theirs, operations);
      const mine = (await ours.batch(operations)).map(shown);
      operations.forEach((operation, at) => assert.deepEqual(mine[at], expected[at], `seed ${seed}: ${JSON.stringify(operation)}`));
      compared += operations.length;
    }
  }
  return compared;
}

// --- Searches

/** The texts that LangGraph's store would embed are those that our searches see. */
async function aSearchSeesTheTextsThatLangGraphEmbeds() {
  const seen = [];
  const embeddings = { embedQuery: async () => [1], embedDocuments: async (texts) => texts.map((text) => (seen.push(text), [1])) };
  const value = { title: "One", author: { name: "Ann", born: 1990 }, chapters: [{ body: "first", tags: ["x", "y"] }, { body: "last" }, 3], none: null, is: true };
  const paths = ["$", "title", "author.name", "author.born", "chapters[*].body", "chapters[0].body", "chapters[-1]", "chapters[*].tags[*]"];
  paths.push("author.*", "{title,author.name}", "none", "absent", "absent.name", "chapters[9].body", "title[0]", "is", "author", "[0]");
  for (const path of paths) {
    seen.length = 0;
    await new InMemoryStore({ index: { dims: 1, embeddings } }).put(["n"], "k", value, [path]);
    const root = `langgraph-${randomUUID()}`;
    await new ContextStore(service, { root }).put(["n"], "k", value, [path]);
    const reply = await service.GET("/v1/artifacts/by-path", { params: { query: { path: `${root}/n/k` } } });
    // Each text once, in any order, and without the white space of JSON.
    const texts = (list) => [...new Set(list.map((text) => text.replaceAll(/\s/g, "")))].sort();
    assert.deepEqual(texts(reply.data.content.split("\n")), seen.length > 0 ? texts(seen) : ["(notsearchable)"], path);
  }
}

async function aQuerySeesTheChosenFields() {
  const store = storeOf({ fields: ["text"] });
  await store.put(["docs"], "plain", { text: "A llama in spring", secret: "walrus" });
  await store.put(["docs"], "chosen", { text: "nothing", notes: [{ body: "An alpaca" }, { body: "in autumn" }] }, ["notes[*].body"]);
  await store.put(["docs"], "hidden", { text: "A llama in winter" }, false);
  await store.put(["docs2"], "other", { text: "A llama elsewhere" });
  const found = async (query) => keysOf(await store.search(["docs"], { query }));
  assert.deepEqual(await found("llama"), ["plain"]);
  assert(!(await found("walrus")).includes("plain"));
  assert.deepEqual(await found("alpaca"), ["chosen"]);
  const [hit] = await store.search(["docs"], { query: "llama" });
  assert(hit.score > 0 && hit.score <= 1, `${hit.score}`);
  await store.put(["docs"], "plain", { text: "A vicuña" });
  assert.deepEqual(await found("llama"), []);
  // Queries that the service refuses: a long one is cut, and a blank one lists the items.
  assert.deepEqual(await found("vicuña ".repeat(2_000)), ["plain"]);
  assert.deepEqual(await found(" \0"), ["chosen", "hidden", "plain"]);
  // Nothing that a search could find is left of these texts.
  for (const [number, text] of ["\u0085", " \u0085 ", `${" ".repeat(100_000)}A llama`].entries()) await store.put(["docs"], `blank ${number}`, { text });
  for (const query of ["searchable", "llama"]) assert(!(await found(query)).some((key) => key.startsWith("blank")));
}

async function pagesOfASearchNeitherRepeatNorSkip() {
  const store = storeOf();
  await store.batch(Array.from({ length: 130 }, (_, n) => ({ namespace: ["pages"], key: `${n}`, value: { n, text: "a page of llamas" } })));
  for (const query of [undefined, "llamas"]) {
    for (const filter of [{ n: { $gte: 10 } }, { n: { $ne: 3 } }, undefined]) {
      const found = [];
      for (let offset = 0; offset < 150; offset += 30) found.push(...keysOf(await store.search(["pages"], { filter, query, limit: 30, offset })));
      const expected = Array.from({ length: 130 }, (_, n) => n).filter((n) => (filter === undefined ? true : "$gte" in filter.n ? n >= 10 : n !== 3));
      assert.deepEqual(found.sort(), expected.map(String).sort(), JSON.stringify([query, filter]));
    }
  }
  assert.deepEqual(await store.search(["pages"], { limit: 0 }), []);
}

// --- Many at once

async function concurrentBatchesLoseNothing() {
  const store = storeOf();
  const batches = Array.from({ length: BATCHES }, (_, batch) => [
    ...Array.from({ length: 10 }, (_, number) => ({ namespace: ["storm", `${batch}`], key: `${number}`, value: { batch, number } })),
    { namespace: ["storm", "shared"], key: "last", value: { batch } },
    { namespace: ["storm", "counted"], key: `${batch}`, value: { batch } },
  ]);
  await Promise.all(batches.map((batch) => store.batch(batch)));
  const all = Array.from({ length: BATCHES }, (_, batch) => batch);
  for (const batch of all) {
    const items = await store.search(["storm", `${batch}`], { limit: 100 });
    assert.deepEqual(keysOf(items), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(String));
    assert(items.every((item) => item.value.batch === batch));
  }
  const counted = await store.search(["storm", "counted"], { limit: 1000 });
  assert.deepEqual(counted.map((item) => item.value.batch).sort((a, b) => a - b), all);
  assert.equal((await store.search(["storm", "shared"])).length, 1);
  assert.equal((await store.listNamespaces({ prefix: ["storm"], limit: 1000 })).length, BATCHES + 2);
  // Callers that create and delete one item.
  await Promise.all(
    Array.from({ length: BATCHES * 2 }, async (_, number) => {
      await store.put(["churn"], "one", { number });
      if (number % 2 === 1) await store.delete(["churn"], "one");
    }),
  );
  assert((await store.search(["churn"])).length <= 1);
  await store.put(["churn"], "one", { number: "last" });
  assert.deepEqual((await store.get(["churn"], "one")).value, { number: "last" });
}

async function pythonAndTypeScriptShareItems() {
  const root = `shared-${randomUUID()}`;
  const program = `
import json, sys
from langgraph_store import ContextStore
from service import Service
store = ContextStore(Service(sys.argv[1]), root=sys.argv[2])
if len(sys.argv) > 3:
    print(json.dumps([[list(item.namespace), item.key, item.value] for item in store.search((), limit=100)]))
else:
    store.put(("a/b", "é%"), "k/1", {"text": "A llama", "n": 5, "deep": {"list": [1, None, "x"]}})`;
  const inPython = (...more) => execFileSync(python, ["-c", program, address, root, ...more], { timeout: 300_000 });
  inPython();
  const store = new ContextStore(service, { root });
  const written = await store.get(["a/b", "é%"], "k/1");
  assert.deepEqual(written.value, { text: "A llama", n: 5, deep: { list: [1, null, "x"] } });
  assert.deepEqual(keysOf(await store.search(["a/b"], { query: "llama", filter: { n: 5 } })), ["k/1"]);
  await store.put(["b"], "%", { said: "ünï", n: 0.5 });
  const all = JSON.parse(inPython("read")).sort();
  assert.deepEqual(all, [[["a/b", "é%"], "k/1", written.value], [["b"], "%", { said: "ünï", n: 0.5 }]]);
}

assert(storeOf() instanceof BaseStore);
await aGraphRemembersAcrossRuns();
await theExamplesOfBaseStoreWork();
const compared = await resultsEqualThoseOfTheInMemoryStore();
await aSearchSeesTheTextsThatLangGraphEmbeds();
await aQuerySeesTheChosenFields();
await pagesOfASearchNeitherRepeatNorSkip();
await concurrentBatchesLoseNothing();
await pythonAndTypeScriptShareItems();
console.log(`langgraph: ${compared} results equal those of InMemoryStore; ${BATCHES} concurrent batches lost nothing; Python and TypeScript share items`);
