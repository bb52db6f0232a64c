// Runs the OpenAI Agents SDK and the functions of the Claude Agent SDK, for TypeScript, on the adapters of
// clients/typescript. The SDKs' own stores in memory must hold the same. Then concurrent batches, and a transcript and
// a session that Python wrote.
//
//   check_typescript.mjs URL PYTHON ADDRESS

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import * as claude from "@anthropic-ai/claude-agent-sdk";
import { Agent, MemorySession, run, setTracingDisabled, tool, Usage } from "@openai/agents";
import { z } from "zod";

import { ContextSessionStore } from "./build/claude_session_store.js";
import { ContextSession } from "./build/openai_session.js";
import { connect } from "./build/service.js";
import { pages } from "./build/transcript.js";

const BATCHES = 64;
const [url, python, address] = process.argv.slice(2);
const service = connect(url);
const storeOf = () => new ContextSessionStore(service, `claude-${randomUUID()}`);
let compared = 0;

/** Random numbers that are the same each time. */
function randomFrom(seed) {
  const next = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
  return { next, below: (limit) => Math.floor(next() * limit), one: (list) => list[Math.floor(next() * list.length)] };
}

// --- OpenAI Agents

class Scripted {
  given = [];
  constructor(...outputs) {
    this.outputs = outputs;
  }
  async getResponse(request) {
    this.given.push(structuredClone(request.input));
    return { usage: new Usage(), output: [this.outputs.shift()] };
  }
  async *getStreamedResponse() {
    throw new Error("not scripted");
  }
}

const says = (text) => ({ type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text }] });
const calls = (name, input) => ({ type: "function_call", callId: "call_1", name, arguments: input, status: "completed" });
const user = (content) => ({ type: "message", role: "user", content });

async function talk(session) {
  const weather = tool({ name: "weather", description: "Weather", parameters: z.object({ city: z.string() }), execute: async ({ city }) => `Sunny in ${city}\0` });
  const model = new Scripted(says("San Francisco"), says("California"), calls("weather", '{"city":"Oakland"}'), says("Sunny"), says("Sunny"), says("Sunny"));
  const agent = new Agent({ name: "Assistant", instructions: "Reply very concisely.", model, tools: [weather] });
  for (const said of ["What city is the Golden Gate Bridge in?", "What state is it in?", "And the weather?", "Sure?", "Sure?"]) {
    await run(agent, said, { session });
  }
  return model.given;
}

async function aConversationIsRemembered() {
  const session = new ContextSession(randomUUID(), service);
  const theirs = new MemorySession();
  assert.deepEqual(await talk(session), await talk(theirs));
  const items = await session.getItems();
  assert.deepEqual(items, await theirs.getItems());
  assert.equal(items.length, 12);
  const later = new ContextSession(await session.getSessionId(), connect(url));
  const model = new Scripted(says("Yes"));
  await run(new Agent({ name: "Assistant", model }), "Still there?", { session: later });
  assert.deepEqual(model.given[0].slice(0, -1), items);
  await later.popItem();
  assert.equal((await later.popItem()).content, "Still there?");
  assert.deepEqual(await session.getItems(), items);
}

async function sessionsEqualThoseInMemory(seed) {
  const random = randomFrom(seed);
  const [ours, theirs] = [new ContextSession(randomUUID(), service), new MemorySession()];
  const item = () =>
    random.one([
      user(random.one(["same", "same", "", " ", "\0", "\u0085", "ünï😀", "half \ud83d"])),
      says("same"),
      { type: "function_call_result", callId: "c", name: "f", status: "completed", output: random.one(["", "x".repeat(900_000), '"'.repeat(450_000)]) },
      { type: "message", role: "user", content: [{ type: "input_image", image: "A".repeat(random.one([1, 400_000, 1_700_000])) }] },
    ]);
  for (let step = 0; step < 30; step++, compared++) {
    const kind = random.next();
    const items = Array.from({ length: random.below(4) }, item);
    const limit = random.one([undefined, 0, 1, 2, 5, -1]);
    const call = (session) => (kind < 0.4 ? session.addItems(items) : kind < 0.65 ? session.getItems(limit) : kind < 0.95 ? session.popItem() : session.clearSession());
    assert.deepEqual(await call(ours), await call(theirs), `seed ${seed}, step ${step}`);
  }
}

async function deletionsBetweenPagesHideNoEntry() {
  const session = new ContextSession(randomUUID(), service);
  await session.addItems(Array.from({ length: 50 }, (_, number) => user(`${number}`)));
  const only = { thread_id: `openai-agents/${await session.getSessionId()}` };
  const stored = (await Array.fromAsync(pages(service, only))).map((hit) => hit.id);
  const found = [];
  for await (const hit of pages(service, only, 10)) {
    if ([10, 19, 28].includes(found.push(hit.id))) for (let popped = 0; popped < 5; popped++) await session.popItem();
  }
  assert.deepEqual(found, stored);
}

async function concurrentItemsAreKept() {
  const id = randomUUID();
  const sessions = Array.from({ length: BATCHES }, () => new ContextSession(id, service));
  await Promise.all(sessions.map((session, batch) => session.addItems([0, 1, 2, 3, 4].map((number) => user(`${batch}/${number}`)))));
  const stored = (await sessions[0].getItems()).map((item) => item.content);
  assert.equal(stored.length, BATCHES * 5);
  for (let start = 0; start < stored.length; start += 5) {
    const [batch] = stored[start].split("/");
    assert.deepEqual(stored.slice(start, start + 5), [0, 1, 2, 3, 4].map((number) => `${batch}/${number}`));
  }
  const popped = await Promise.all(sessions.map((session) => session.popItem()));
  assert.deepEqual(popped.map((item) => item.content).sort(), stored.slice(-BATCHES).sort());
  assert.deepEqual((await sessions[0].getItems()).map((item) => item.content), stored.slice(0, -BATCHES));
}

/**
 * A proxy. The first attempt of each write with an idempotency key fails. In turn, it is answered with an empty 503 or
 * 502, or it is forwarded and its reply is lost.
 */
async function lossy(use) {
  const [lost, seen] = [new Set(), { lost: 0, busy: 0 }];
  const proxy = createServer(async (request, response) => {
    const body = Buffer.concat(await Array.fromAsync(request));
    const key = request.headers["idempotency-key"];
    if (key !== undefined && !lost.has(key) && seen.busy <= seen.lost) {
      lost.add(key);
      seen.busy++;
      return response.writeHead(seen.busy % 2 ? 503 : 502).end();
    }
    const { host, connection, "transfer-encoding": _, "content-length": __, ...headers } = request.headers;
    const reply = await fetch(url + request.url, { method: request.method, headers, ...(body.length > 0 ? { body } : {}) });
    const text = await reply.text();
    if (key !== undefined && !lost.has(key)) {
      lost.add(key);
      seen.lost++;
      return request.socket.destroy();
    }
    response.writeHead(reply.status, { "content-type": reply.headers.get("content-type") }).end(text);
  });
  await new Promise((listening) => proxy.listen(0, "127.0.0.1", listening));
  await use(connect(`http://127.0.0.1:${proxy.address().port}`));
  proxy.close();
  proxy.closeAllConnections();
  assert(seen.lost > 3 && seen.busy > 3, JSON.stringify(seen));
}

async function aLostReplyRepeatsNothing() {
  await lossy(async (unreliable) => {
    const session = new ContextSession(randomUUID(), unreliable);
    for (let number = 0; number < 5; number++) await session.addItems([user(`${number}`), user("same")]);
    assert.equal((await session.popItem()).content, "same");
    const kept = (await session.getItems()).map((item) => item.content);
    assert.deepEqual(kept, ["0", "same", "1", "same", "2", "same", "3", "same", "4"]);
    const [store, key] = [new ContextSessionStore(unreliable, `claude-${randomUUID()}`), { projectKey: "p", sessionId: "s" }];
    const lines = [{ type: "mode" }, entry(1), { type: "mode" }];
    for (const line of lines) await store.append(key, [line]);
    assert.deepEqual(await store.load(key), lines);
    await store.delete(key);
    assert.equal(await store.load(key), null);
  });
}

/** A 503 without Retry-After may come after the change. With one, nothing was changed. */
async function aWriteWithoutKeyIsRepeatedOnlyWhereNothingWasChanged() {
  for (const [headers, attempts] of [[{}, 1], [{ "retry-after": "1" }, 2]]) {
    let seen = 0;
    const busy = createServer((_, response) => {
      seen++;
      if (seen === 1) response.writeHead(503, headers).end();
      else response.writeHead(200, { "content-type": "application/json" }).end('{"deleted_count": 1}');
    });
    await new Promise((listening) => busy.listen(0, "127.0.0.1", listening));
    const client = connect(`http://127.0.0.1:${busy.address().port}`);
    const { response } = await client.POST("/v1/artifacts/delete", { body: { path: "/memories" } });
    busy.close();
    busy.closeAllConnections();
    assert.deepEqual([seen, response.status], [attempts, attempts === 1 ? 503 : 200]);
  }
}

// --- Claude Agent SDK

const entry = (number, more) => ({
  type: "user",
  uuid: randomUUID(),
  timestamp: new Date(Date.UTC(2026, 10, 24, 10, 0, number)).toISOString(),
  message: { role: "user", content: `Message ${number}` },
  ...more,
});

async function theFunctionsOfTheSdkWorkAsInMemory() {
  const dir = process.cwd();
  const session = randomUUID();
  const lines = Array.from({ length: 130 }, (_, number) => entry(number, { sessionId: session, cwd: dir, gitBranch: "main" }));
  lines.forEach((line, number) => (line.parentUuid = number === 0 ? null : lines[number - 1].uuid));
  const seen = [];
  for (const sessionStore of [storeOf(), new claude.InMemorySessionStore()]) {
    const options = { dir, sessionStore };
    // Only the SDK knows the key of a directory.
    let key;
    const spying = { append: async (given) => void (key = given), load: async () => lines, listSessions: async () => [] };
    await claude.tagSession(session, "x", { dir, sessionStore: spying });
    for (let start = 0; start < lines.length; start += 40) await sessionStore.append(key, lines.slice(start, start + 40));
    await sessionStore.append({ ...key, subpath: "subagents/agent-a1" }, lines.slice(0, 2).map((line) => ({ ...line, agentId: "a1", isSidechain: true })));
    await claude.renameSession(session, "Retries", options);
    await claude.tagSession(session, "kept", options);
    const [{ lastModified, ...info }] = await claude.listSessions(options);
    assert(lastModified > 1e12);
    const messages = await claude.getSessionMessages(session, options);
    const agents = await claude.listSubagents(session, options);
    const said = await claude.getSubagentMessages(session, agents[0], options);
    const fork = await claude.forkSession(session, { ...options, title: "Fork" });
    const forked = (await claude.getSessionMessages(fork.sessionId, options)).map((message) => message.message);
    const titles = (await claude.listSessions(options)).map((info) => info.customTitle).sort();
    await claude.deleteSession(session, options);
    assert.equal(await sessionStore.load(key), null);
    assert.deepEqual(await sessionStore.listSubkeys(key), []);
    seen.push([info, messages, agents, said, forked, titles, (await claude.listSessions(options)).length]);
  }
  assert.deepEqual(seen[0], seen[1]);
  assert.deepEqual([seen[0][0].customTitle, seen[0][0].tag, seen[0][1].length, seen[0][5]], ["Retries", "kept", 130, ["Fork", "Retries"]]);
}

async function storesEqualThoseInMemory(seed) {
  const random = randomFrom(seed);
  const [ours, theirs] = [storeOf(), new claude.InMemorySessionStore()];
  for (let step = 0; step < 60; step++, compared++) {
    const key = { projectKey: random.one(["A", "B"]), sessionId: random.one(["s", "t"]) };
    if (random.next() < 0.4) key.subpath = random.one(["subagents/1", "subagents/1/2", "x"]);
    const kind = random.next();
    const lines = Array.from({ length: 1 + random.below(3) }, () => entry(step, { customTitle: `Title ${step}` }));
    const call = async (store) => {
      if (kind < 0.5) return store.append(key, lines);
      if (kind < 0.65) return store.delete(key);
      if (kind < 0.8) return store.load(key);
      if (kind < 0.9) return (await store.listSubkeys(key)).sort();
      const summaries = await store.listSessionSummaries(key.projectKey);
      return new Map(summaries.map((summary) => [summary.sessionId, summary.data]));
    };
    assert.deepEqual(await call(ours), await call(theirs), `seed ${seed}, step ${step}`);
  }
}

async function repetitionsAreStoredOnce() {
  const [store, key] = [storeOf(), { projectKey: "p", sessionId: "s" }];
  const lines = Array.from({ length: 250 }, (_, number) => entry(number));
  await Promise.all([store.append(key, lines.slice(0, 150)), store.append(key, lines.slice(100))]);
  await store.append(key, [lines[0], { type: "mode" }, { type: "mode" }]);
  assert.deepEqual(await store.load(key), [...lines, { type: "mode" }, { type: "mode" }]);
  // Other processes may have stored entries at the same time, so that the known ones have more than one page.
  const copies = Array.from({ length: 50 }, () => lines.slice(1, 3)).flat();
  await store.transcript(key).append(copies.map((line) => [line.uuid, line]));
  await store.append(key, lines.slice(0, 3));
  assert.deepEqual(await store.load(key), [...lines, { type: "mode" }, { type: "mode" }, ...copies]);
}

async function concurrentEntriesAreKept() {
  const prefix = `claude-${randomUUID()}`;
  const stores = Array.from({ length: BATCHES }, () => new ContextSessionStore(service, prefix));
  const batches = stores.map((_, batch) => [0, 1, 2, 3, 4].map((number) => entry(number, { batch })));
  const key = (batch) => ({ projectKey: "p", sessionId: `s${batch % 4}`, ...(batch % 8 < 4 ? { subpath: "x" } : {}) });
  await Promise.all(stores.map((store, batch) => store.append(key(batch), batches[batch])));
  for (let kind = 0; kind < 8; kind++) {
    const stored = await stores[0].load(key(kind));
    assert.equal(stored.length, (BATCHES / 8) * 5);
    const runs = Array.from({ length: stored.length / 5 }, (_, run) => stored.slice(run * 5, run * 5 + 5));
    assert.deepEqual(runs.sort((one, other) => one[0].batch - other[0].batch), batches.filter((_, batch) => batch % 8 === kind));
  }
  const listed = await stores[0].listSessions("p");
  assert.deepEqual(listed.map((session) => session.sessionId).sort(), ["s0", "s1", "s2", "s3"]);
}

async function pythonAndTypeScriptShareSessions() {
  const prefix = `shared-${randomUUID()}`;
  const program = `
import asyncio, json, sys
from claude_session_store import ContextSessionStore
from openai_session import ContextSession
from service import Service
async def main():
    service, entries = Service(sys.argv[1]), json.load(sys.stdin)
    store, session = ContextSessionStore(service, sys.argv[2]), ContextSession("s", service, prefix=sys.argv[2] + "-items")
    for key in ({"project_key": "p/(ü)", "session_id": "s"}, {"project_key": "p/(ü)", "session_id": "s", "subpath": "x'/" + "y" * 300}):
        await store.append(key, entries)
    await session.add_items(entries)
    if len(sys.argv) > 3:
        print(json.dumps([await store.load(key), await session.get_items()]))
asyncio.run(main())`;
  const odd = [entry(0, { text: "\0 half \ud83d ünï 😀", fraction: 0.1, none: null }), entry(1, { image: '"é'.repeat(150_000) }), entry(2)];
  const inPython = (...more) => execFileSync(python, ["-c", program, address, prefix, ...more], { input: JSON.stringify(odd), maxBuffer: 1 << 28, timeout: 300_000 });
  inPython();
  const store = new ContextSessionStore(service, prefix);
  const key = { projectKey: "p/(ü)", sessionId: "s", subpath: `x'/${"y".repeat(300)}` };
  assert.deepEqual(await store.load({ projectKey: "p/(ü)", sessionId: "s" }), odd);
  assert.deepEqual(await store.load(key), odd);
  assert.deepEqual(await store.listSubkeys(key), [key.subpath]);
  const session = new ContextSession("s", service, `${prefix}-items`);
  assert.deepEqual(await session.getItems(), odd);
  // What TypeScript adds is read by Python, which repeats no entry.
  const added = [entry(3, { text: "\ud83d é", image: '"é'.repeat(150_000) })];
  await store.append(key, added);
  await session.addItems(added);
  const [entries, items] = JSON.parse(inPython("read"));
  assert.deepEqual(entries, [...odd, ...added]);
  assert.deepEqual(items, [...odd, ...added, ...odd]);
}

setTracingDisabled(true);
await aConversationIsRemembered();
for (let seed = 0; seed < 4; seed++) await sessionsEqualThoseInMemory(seed);
await deletionsBetweenPagesHideNoEntry();
await concurrentItemsAreKept();
await aLostReplyRepeatsNothing();
await aWriteWithoutKeyIsRepeatedOnlyWhereNothingWasChanged();
await theFunctionsOfTheSdkWorkAsInMemory();
for (let seed = 0; seed < 6; seed++) await storesEqualThoseInMemory(seed);
await repetitionsAreStoredOnce();
await concurrentEntriesAreKept();
await pythonAndTypeScriptShareSessions();
console.log(`typescript: ${compared} results equal those of the SDKs' stores in memory; ${BATCHES} concurrent batches lost nothing; Python and TypeScript share sessions`);
