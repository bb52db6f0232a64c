// Checks clients/typescript/memoryTool.ts against a service, through the SDK's tool runner. Its Messages API is a
// script that asks for one command after the other, so nothing leaves this machine. check.py has run before.
//
//   node build/check.js URL scenario.json [SEED...]
//
// With seeds, only the comparison with the SDK's file system tool runs, once for each.

import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, rmdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import Anthropic from "@anthropic-ai/sdk";
import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";
import { BetaLocalFilesystemMemoryTool } from "@anthropic-ai/sdk/tools/memory/node";
import createClient from "openapi-fetch";

import { ContextMemoryTool } from "./memoryTool.js";
import type { paths } from "./openapi.d.ts";

type Input = Record<string, unknown>;
type Result = [text: unknown, isError: boolean];
type Case = { input: Input; text?: string; error?: string; typescript?: string };

const [baseUrl = "", scenarioFile = "", ...seeds] = process.argv.slice(2);
const AT_ONCE = 64;
const client = createClient<paths>({ baseUrl });
const tool = betaMemoryTool(new ContextMemoryTool(client));
const question = "What do you remember?";

/** Sends the commands as a model does, and returns the results that it gets. */
async function converse(commands: Input[]): Promise<Result[]> {
  const results: Result[] = [];
  const answer = async (_: unknown, init?: { body?: unknown }): Promise<Response> => {
    const asked = JSON.parse(String(init?.body));
    const last = asked.messages.at(-1).content;
    if (last === question) {
      assert.deepEqual(asked.tools, [{ type: "memory_20250818", name: "memory" }]);
    } else {
      assert.equal(last.length, 1);
      assert.equal(last[0].tool_use_id, `toolu_${results.length}`);
      results.push([last[0].content, last[0].is_error ?? false]);
    }
    const number = results.length;
    const over = number === commands.length;
    const use = { type: "tool_use", id: `toolu_${number}`, name: "memory", input: commands[number], caller: { type: "direct" } };
    const content = [over ? { type: "text", text: "Done." } : use];
    const usage = { input_tokens: 1, output_tokens: 1 };
    const message = { id: `msg_${number}`, type: "message", role: "assistant", model: "scripted", content, usage };
    return Response.json({ ...message, stop_reason: over ? "end_turn" : "tool_use" });
  };
  const anthropic = new Anthropic({ apiKey: "none", baseURL: "http://scripted", fetch: answer, maxRetries: 0 });
  const messages = [{ role: "user" as const, content: question }];
  await anthropic.beta.messages.toolRunner({ model: "scripted", max_tokens: 1024, messages, tools: [tool] }).runUntilDone();
  assert.equal(results.length, commands.length);
  return results;
}

async function clear(): Promise<void> {
  const reply = await client.POST("/v1/artifacts/delete", { body: { path: "/memories" } });
  assert(reply.response.ok, await reply.error?.detail);
}

/** The lines of a file. */
async function read(path: string): Promise<string[]> {
  const [[text, isError] = ["", true]] = await converse([{ command: "view", path }]);
  assert(!isError, String(text));
  return String(text).split("\n").slice(1).map((line) => line.slice(line.indexOf("\t") + 1));
}

async function readsWhatPythonWrote(): Promise<void> {
  assert.deepEqual(await read("/memories/from python/🦀.md"), ["日本語", "two\r", ""]);
  assert.deepEqual(await read("/memories/from python/empty"), [""]);
  assert.deepEqual(await read("/memories/from python/blank"), [" \u0085", "\t"]);
}

async function scenario(): Promise<number> {
  const cases: Case[] = JSON.parse(await readFile(scenarioFile, "utf8"));
  await clear();
  const results = await converse(cases.map(({ input }) => input));
  for (const [at, { input, text, error, typescript }] of cases.entries()) {
    const expected = error === undefined ? (typescript ?? text)?.replace("{hidden}", "hidden items and node_modules") : `Error: ${typescript ?? error}`;
    assert.deepEqual(results[at], [expected, error !== undefined], JSON.stringify(input));
  }
  return cases.length;
}

async function limits(): Promise<void> {
  await clear();
  const path = "/memories/long.md";
  const refused = (count: number): Result => [`Error: The file ${path} would have ${count} characters; the maximum is 100000.`, true];
  const results = await converse([
    { command: "create", path, file_text: "ü".repeat(100_001) },
    { command: "create", path, file_text: "🦀".repeat(100_000) },
    { command: "insert", path, insert_line: 1, insert_text: "x" },
    { command: "str_replace", path, old_str: "🦀".repeat(100_000), new_str: "x".repeat(100_001) },
  ]);
  assert.deepEqual(results, [refused(100_001), [`File created successfully at: ${path}`, false], refused(100_002), refused(100_001)]);
  assert.deepEqual(await read(path), ["🦀".repeat(100_000)]);

  // More files than a page of the list has, and larger ones than a preview shows.
  await clear();
  const names = Array.from({ length: 120 }, (_, number) => `${number * 7}`.padStart(3, "0"));
  const files = names.map((name) => ({ command: "create", path: `/memories/many/${name}`, file_text: "x".repeat(Number(name)) }));
  const [text] = (await converse([...files, { command: "view", path: "/memories" }])).at(-1) ?? [];
  assert.deepEqual(String(text).split("\n").slice(3), names.map((name) => `${Number(name)}B\t/memories/many/${name}`));
}

/** A create whose file cannot be moved to its path, because of a proxy's error or a lost connection, leaves nothing. */
async function failedMoves(): Promise<void> {
  await clear();
  const lose = (): Response => {
    throw new TypeError("fetch failed");
  };
  for (const moved of [() => new Response(null, { status: 502 }), () => new Response("<p>Bad gateway", { status: 502 }), lose]) {
    const through = async (request: Request) => (request.url.endsWith("/move") ? moved() : fetch(request));
    const failing = new ContextMemoryTool(createClient<paths>({ baseUrl, fetch: through }));
    const create = failing.create({ command: "create", path: "/memories/lost.md", file_text: "x" });
    await assert.rejects(create, /^(Type)?Error: (The service replied with status 502\.|fetch failed)$/);
  }
  const left = await client.GET("/v1/artifacts", { params: { query: { path_prefix: "/", limit: 50 } } });
  assert.deepEqual(left.data?.result, []);
}

/** Each edit is a version. What others write to the artifact is kept. */
async function versions(): Promise<void> {
  await clear();
  const path = "/memories/history.md";
  const artifact = async () => (await client.GET("/v1/artifacts/by-path", { params: { query: { path } } })).data;
  await converse([
    { command: "create", path, file_text: "" },
    { command: "insert", path, insert_line: 0, insert_text: "one" },
    { command: "str_replace", path, old_str: "one\n", new_str: "two" },
  ]);
  const third = await artifact();
  assert.deepEqual([third?.version, third?.content, third?.metadata], [3, "two", {}]);
  const at = { artifact_id: third?.id ?? "" };
  const second = await client.GET("/v1/artifacts/{artifact_id}/versions/{version}", { params: { path: { ...at, version: 2 } } });
  assert.equal(second.data?.content, "one\n");

  const write = (body: { content?: string; metadata?: Input }) => client.PATCH("/v1/artifacts/{artifact_id}", { params: { path: at }, body });
  await write({ metadata: { project: "x" } });
  await converse([{ command: "str_replace", path, old_str: "two", new_str: "" }]);
  assert.deepEqual(await read(path), [""]);
  await write({ content: "written by another client" });
  assert.deepEqual(await read(path), ["written by another client"]);
  await converse([{ command: "insert", path, insert_line: 1, insert_text: "more" }]);
  const last = await artifact();
  assert.deepEqual([last?.content, last?.metadata], ["written by another client\nmore", { project: "x" }]);
}

async function concurrent(): Promise<void> {
  await clear();
  const path = "/memories/shared.md";
  const names = Array.from({ length: AT_ONCE }, (_, number) => `agent-${`${number}`.padStart(2, "0")}`);
  await converse([{ command: "create", path, file_text: names.map((name) => `old-${name}\n`).join("") }]);
  const edits = names.map((name) =>
    converse([
      { command: "insert", path, insert_line: 0, insert_text: `new-${name}` },
      { command: "str_replace", path, old_str: `old-${name}\n`, new_str: `changed-${name}\n` },
    ]),
  );
  for (const results of await Promise.all(edits)) assert.deepEqual(results.map(([, isError]) => isError), [false, false], String(results));
  const expected = ["", ...names.map((name) => `new-${name}`), ...names.map((name) => `changed-${name}`)];
  assert.deepEqual((await read(path)).sort(), expected.sort());
  const artifact = await client.GET("/v1/artifacts/by-path", { params: { query: { path } } });
  assert.equal(artifact.data?.version, 1 + 2 * AT_ONCE);

  // One of many creates or renames succeeds.
  const one = "/memories/one.md";
  const created = await Promise.all(names.map((name) => converse([{ command: "create", path: one, file_text: name }])));
  const winner = created.findIndex(([result]) => result?.[1] === false);
  assert.notEqual(winner, -1, String(created));
  assert.deepEqual(await read(one), [names[winner]]);
  assert.equal(created.filter(([result]) => result?.[0] === `Error: File ${one} already exists`).length, AT_ONCE - 1);
  await converse(names.map((name) => ({ command: "create", path: `/memories/d/${name}`, file_text: name })));
  const renames = names.slice(0, 8).map((name) => converse([{ command: "rename", old_path: "/memories/d", new_path: `/memories/to/${name}` }]));
  const renamed = await Promise.all(renames);
  assert.equal(renamed.filter(([result]) => result?.[1] === false).length, 1, String(renamed));
  const moved = renamed.findIndex(([result]) => result?.[1] === false);
  const [[listing] = []] = await converse([{ command: "view", path: `/memories/to/${names[moved]}` }]);
  assert.equal(String(listing).split("\n").length, 2 + AT_ONCE);
}

/** Agents create, rename and delete the same few names. No name may become both a file and a directory. */
async function race(): Promise<void> {
  await clear();
  const names = ["r", "r/s", "r/s/t", "u", "u/s", "v/r/s"].map((name) => `/memories/${name}`);
  const done: Record<string, number> = { create: 0, rename: 0, delete: 0 };
  const agent = async (number: number) => {
    for (let turn = 0; turn < 12; turn++) {
      const [old_path, new_path] = [names[(number * 5 + turn) % 6], names[(number + turn * turn + 1) % 6]];
      const commands: Input[] = [
        { command: "create", path: new_path, file_text: `${number} ${turn}` },
        { command: "rename", old_path, new_path },
        { command: "rename", old_path, new_path },
        { command: "delete", path: old_path },
      ];
      // The last command of all is a create, so that a file is left.
      const input = commands[turn === 11 ? 0 : (number + turn * 7) % 4] ?? {};
      const [[, isError] = ["", true]] = await converse([input]);
      if (!isError) done[String(input.command)]!++;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, (_, number) => agent(number)));
  assert(Object.values(done).every((count) => count > 4), `the agents were not in each other's way: ${JSON.stringify(done)}`);
  const listed = await client.GET("/v1/artifacts", { params: { query: { path_prefix: "/", limit: 50 } } });
  const left = listed.data?.result.map((file) => file.path ?? "") ?? [];
  assert(left.length > 0 && left.every((path) => path.startsWith("/memories/")), left.join());
  assert.deepEqual(left.filter((path) => left.some((other) => other.startsWith(`${path}/`))), [], left.join());
  console.log(`typescript: ${AT_ONCE} agents in a race, ${JSON.stringify(done)}; no name is both a file and a directory`);
}

const NAMES = ["a", "b.md", "c d", "é🦀", ".hidden", "node_modules", "a.b", "Z"];
// No line has one of the pieces twice, because the SDK's tool counts lines, and no piece spans lines.
const TEXTS = ["", "\n", "x", "x\n", "one\ntwo\nthree\n", "one\ntwo\nx\n\n", " \t\n ", "ab\r\ncd\r\n", "🦀\nü\nx🦀", "\n\nx", "y".repeat(1500), "q\n".repeat(300)];
const PIECES = ["x", "one", "two", "🦀", "ab\r", "nothing"];
const NEW_PIECES = ["1", "", "2\n2", "$&", "\n"];

/**
 * Sends random commands to both tools. A file system keeps an empty directory, and its size says nothing of its files.
 */
async function compare(seed: number): Promise<void> {
  let state = seed;
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const upTo = (first: number, last: number) => first + Math.floor(random() * (last - first + 1));
  const choose = <T>(from: T[]): T => from[upTo(0, from.length - 1)] as T;
  const known: string[] = [];
  const path = () => {
    if (known.length > 0 && random() < 0.6) return choose(known);
    return `/memories${Array.from({ length: choose([0, 1, 1, 2, 2, 3]) }, () => `/${choose(NAMES)}`).join("")}`;
  };
  const remembered = () => {
    known.push(path());
    return known.at(-1);
  };
  const kinds: (() => Input)[] = [
    () => ({ command: "view", path: path() }),
    () => ({ command: "view", path: path(), view_range: [upTo(-2, 9), upTo(-1, 9)] }),
    () => ({ command: "create", path: remembered(), file_text: choose(TEXTS) }),
    () => ({ command: "create", path: remembered(), file_text: choose(TEXTS) }),
    () => ({ command: "str_replace", path: path(), old_str: choose(PIECES), new_str: choose(NEW_PIECES) }),
    () => ({ command: "insert", path: path(), insert_line: upTo(-1, 5), insert_text: choose(TEXTS) }),
    () => ({ command: "insert", path: path(), insert_line: upTo(-1, 5), insert_text: choose(TEXTS) }),
    () => ({ command: "delete", path: path() }),
    () => ({ command: "rename", old_path: path(), new_path: remembered() }),
  ];
  await clear();
  const scratch = await mkdtemp(join(tmpdir(), "memory-tool-"));
  const files = betaMemoryTool(await BetaLocalFilesystemMemoryTool.init(scratch));
  const run = (of: typeof tool, input: Input) =>
    Promise.resolve(of.run(of.parse(input))).then(
      (text) => ({ text: sizeless(String(text)), code: undefined }),
      (error: NodeJS.ErrnoException) => ({ text: `Error: ${error.message}`, code: error.code }),
    );
  for (let number = 0; number < 60; number++) {
    const input = choose(kinds)();
    const [expected, got] = [await run(files, input), await run(tool, input)];
    const place = `seed ${seed}, command ${number}: ${JSON.stringify(input)}`;
    // An error with a code is the file system's. The SDK has no sentence for it.
    if (expected.code === undefined) assert.equal(got.text, expected.text, place);
    else assert(got.text.startsWith("Error: "), `${place}: ${got.text}`);
    await prune(join(scratch, "memories"));
  }
  await rm(scratch, { recursive: true });
}

async function prune(directory: string): Promise<number> {
  let count = 0;
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const inside = join(directory, entry.name);
    if (!entry.isDirectory() || (await prune(inside)) > 0) count++;
    else await rmdir(inside);
  }
  return count;
}

function sizeless(text: string): string {
  if (!text.startsWith("Here're the files")) return text;
  const rows = text.split("\n");
  return rows.map((row, at) => (at === 1 || (at > 1 && row.endsWith("/")) ? row.replace(/^\S+/, "") : row)).join("\n");
}

if (seeds.length === 0) {
  await readsWhatPythonWrote();
  const cases = await scenario();
  await limits();
  await failedMoves();
  await versions();
  await concurrent();
  await race();
  console.log(`typescript: ${cases} commands through the runner, and ${AT_ONCE} concurrent agents that lose no edit`);
}
const compared = seeds.length > 0 ? seeds.map(Number) : Array.from({ length: 40 }, (_, seed) => seed);
for (const seed of compared) await compare(seed);
await clear();
console.log(`typescript: the same replies as the SDK's file system tool to ${60 * compared.length} random commands`);
