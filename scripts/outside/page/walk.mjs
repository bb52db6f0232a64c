// Walks through the page as a person would, with the keyboard and the mouse, and checks every view.
//
//   node walk.mjs CHROMIUM OPEN_URL KEYED_URL KEY PICTURES AXE PROGRAM [STEP...]
//
// PROGRAM is context-service: some steps start a service of their own. PAGE_ENTRIES is how many entries the step `many`
// stores (10 000).
//
// No view may cause an error, a request to another host, or a violation of the Content-Security-Policy or of axe's
// rules. The walk leaves a picture of each view, light, dark and narrow.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import { chromium } from "playwright-core";

import { storeByGrpc } from "./grpc.mjs";
import { ownService } from "./own.mjs";
import { Rest } from "./rest.mjs";
import { picture, seed } from "./seed.mjs";
import { firstPaint, heapOf, timeOfView, viewChanges } from "./times.mjs";
import { CORPUS, storeCorpus } from "./xss.mjs";

const [executablePath, service, keyedService, key, pictures, axeFile, program, ...only] = process.argv.slice(2);
const SECONDS = 1000;
const axe = await readFile(axeFile, "utf8");

// A proxy that serves the service under a path, as a web server of an organisation would. Its streams can be cut.
const PREFIX = "/team/memory";
let reachable = true;
// The open streams of changes, and the cursors with which all of them were opened.
const streams = new Set();
const opened = [];
const proxy = http.createServer((request, response) => {
  if (!reachable) return void request.socket.destroy();
  if (!request.url.startsWith(`${PREFIX}/`)) return void response.writeHead(404).end("outside the prefix");
  const { hostname, port } = new URL(service);
  const options = { hostname, port, method: request.method, path: request.url.slice(PREFIX.length), headers: request.headers };
  const forwarded = http.request(options, (reply) => {
    response.writeHead(reply.statusCode, reply.headers);
    reply.pipe(response);
  });
  forwarded.on("error", (error) => response.destroy(error));
  response.on("close", () => {
    streams.delete(response);
    forwarded.destroy();
  });
  if (options.path.startsWith("/v1/watch")) {
    streams.add(response);
    opened.push(new URL(options.path, service).searchParams.get("cursor"));
  }
  request.pipe(forwarded);
});
await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
const proxied = `http://127.0.0.1:${proxy.address().port}${PREFIX}`;

// Without its sandbox, because root may not use it. Only pages of our own service are opened.
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/** Opens a page and records every event that must not happen. */
async function visit(base, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"], ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15 * SECONDS);
  const problems = [];
  page.expected = [];
  page.authorizations = [];
  await page.exposeFunction("ran", () => problems.push("a stored text ran"));
  await page.exposeFunction("violated", (what) => problems.push(`against the policy: ${what}`));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => window.violated(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  page.on("pageerror", (error) => problems.push(`error in the page: ${error.stack}`));
  page.on("dialog", (dialog) => {
    problems.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (message) => {
    if (message.type() !== "error") return;
    // The browser reports every refused request as an error. Each step lists those that it expects.
    if (/Failed to load resource/.test(message.text()) && page.expected.some((one) => message.text().includes(one))) return;
    problems.push(`console: ${message.text()} ${message.location().url}`);
  });
  page.on("request", (request) => {
    const { protocol, href } = new URL(request.url());
    // Only the navigation to the issuer leaves the service.
    if (page.issuer !== undefined && request.isNavigationRequest() && href.startsWith(`${page.issuer}/authorize?`)) return void page.authorizations.push(href);
    if (protocol.startsWith("http") && !href.startsWith(`${base}/`)) problems.push(`a request to ${href}`);
  });
  page.done = async () => {
    assert.deepEqual(problems, []);
    await context.close();
  };
  return page;
}

async function accessible(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], rules: { region: { enabled: false } } }),
  );
  const messages = violations.map(({ id, help, nodes }) => `${id}: ${help}\n    ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 200)} ${failureSummary}`).slice(0, 3).join("\n    ")}`);
  assert.deepEqual(messages, [], `${what} is not accessible`);
}

/** Waits until the condition holds. */
async function until(what, holds) {
  const deadline = Date.now() + 30 * SECONDS;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`not within 30 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const heading = (page, name) => page.getByRole("heading", { level: 1, name });
const step = (what) => console.log(`  ${what}`);

const { rest, wrong, plan } = await seed(service);
const statistics = await rest.get("v1/statistics");
const semantic = statistics.semantic_search.available;
console.log(`page: ${statistics.total_entries} entries, semantic search ${semantic ? "on" : "off"}`);

/** Every view: its name, its link, and an element that shows that it is loaded. */
const VIEWS = [
  ["activity", "#/activity", (page) => page.getByText("Check 60: all").first()],
  ["threads", "#/threads", (page) => page.getByRole("link", { name: /heartbeat/ }).first()],
  ["thread", `#/threads/${encodeURIComponent("billing-service")}`, (page) => page.getByText("We chose PostgreSQL").first()],
  ["search", "#/search?q=billing+database&kind=hybrid", (page) => page.getByText("Relevance").or(page.getByText("Words", { exact: true })).first()],
  ["search-words", "#/search?q=migration&kind=fts&where=%5B%5B%22severity%22%2C%22gte%22%2C%222%22%5D%5D", (page) => page.locator(".entry mark").first()],
  ["artifacts", "#/artifacts", (page) => page.getByRole("link", { name: /Deployment plan/ })],
  ["artifact", `#/artifacts/${plan}`, (page) => page.getByText("tell support").first()],
  ["diff", `#/artifacts/${plan}?version=4&against=1`, (page) => page.locator(".diff .added").first()],
  ["entry", `#/entry/${wrong}`, (page) => page.getByText("What came before it in its thread")],
  ["health", "#/health", (page) => page.getByText("Operations since the start").first()],
  ["connect", "#/connect", (page) => page.getByText("claude mcp add")],
];

async function visitEveryView(base, kinds) {
  for (const [kind, options] of kinds) {
    const page = await visit(base, options);
    for (const [name, hash, shown] of VIEWS) {
      // A new document each time, so that links work when they are opened directly.
      await page.goto("about:blank");
      await page.goto(`${base}/${hash}`);
      await shown(page).waitFor();
      await page.waitForFunction(() => document.querySelector(".waiting") === null);
      await page.screenshot({ path: join(pictures, `${name}-${kind}.png`) });
      // On a phone the page scrolls below a bar, so axe checks the whole page and not only the visible part.
      const { viewport } = options;
      if (viewport) await page.setViewportSize({ ...viewport, height: await page.evaluate(() => document.documentElement.scrollHeight + 100) });
      await accessible(page, `${name} (${kind})`);
      if (viewport) await page.setViewportSize(viewport);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(overflow, 0, `${name} (${kind}) scrolls sideways`);
    }
    await page.done();
    step(`every view is accessible and within its rules: ${kind}`);
  }
}

async function followActivity(base) {
  const page = await visit(base);
  await page.goto(`${base}/`);
  await heading(page, "Activity").waitFor();
  await page.locator(".entry").first().waitFor();
  const times = {};
  for (const [name, store] of [
    ["REST", (entry) => rest.post("v1/contexts", entry)],
    ["gRPC", (entry) => storeByGrpc(service, entry)],
  ]) {
    const text = `Stored over ${name} just now.`;
    await store({ thread_id: "live", source: "agent", text });
    const began = Date.now();
    await page.getByText(text).waitFor();
    times[name] = Date.now() - began;
  }
  step(`an entry of another client appears after its reply in ${times.REST} ms (REST), ${times.gRPC} ms (gRPC)`);
  const stored = await rest.post("v1/contexts", { thread_id: "live", source: "agent", text: "Stored by another client." });
  await rest.call("PATCH", `v1/contexts/${stored.context_id}`, { text: "Changed by another client." });
  await page.getByText("Changed by another client.").waitFor();
  await page.locator(`#entry-${stored.context_id} .mark.changed`).waitFor();

  // A paused view counts the changes by kind.
  await page.getByRole("button", { name: "Pause" }).click();
  const missed = await rest.post("v1/contexts", { thread_id: "live", source: "agent", text: "Stored while it was paused." });
  await rest.call("PATCH", `v1/contexts/${stored.context_id}`, { text: "Changed while it was paused." });
  await page.getByText("Since then: 1 new, 1 changed.").waitFor();
  await accessible(page, "activity, paused");
  await page.screenshot({ path: join(pictures, "paused-light.png") });
  assert.equal(await page.getByText("while it was paused.").count(), 0);
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByText("Stored while it was paused.").waitFor();
  await page.getByText("Changed while it was paused.").waitFor();
  await rest.call("DELETE", `v1/contexts/${stored.context_id}`);
  await page.locator(`#entry-${stored.context_id} .mark.deleted`).waitFor();

  // Changes of artifacts, and of entries that are not in the list, are shown as one line.
  const old = (await rest.post("v1/contexts/search", { thread_id: "onboarding", limit: 1 })).results[0];
  await rest.call("DELETE", `v1/contexts/${old.id}`);
  const made = await rest.post("v1/artifacts", { title: "Made while one watches", content: "x" });
  await page.getByRole("link", { name: "Made while one watches" }).waitFor();
  await rest.call("DELETE", `v1/artifacts/${made.id}`);
  await page.locator(".entry.line .mark.deleted").first().waitFor();

  // A text has five lines until the user opens it. A long text is cut.
  for (const lines of [9, 100]) {
    const { context_id: long } = await rest.post("v1/contexts", { thread_id: "live", source: "agent", text: Array.from({ length: lines }, (_, i) => `Line ${i + 1} of ${lines}.`).join("\n") });
    const article = page.locator(`#entry-${long}`);
    await article.getByRole("button", { name: "Show the whole text" }).click();
    await page.waitForFunction(([id, end]) => document.querySelector(`#entry-${id} .text`).innerText.includes(end), [long, `Line ${lines} of ${lines}.`]);
    assert.ok(await article.locator(".text").evaluate((text) => text.scrollHeight <= text.clientHeight + 1), "lines are hidden");
  }

  // The view can be filtered by source and thread. The service filters, so entries beyond the newest are found too.
  await page.getByRole("radio", { name: "Users" }).check();
  // Entries of users are there before the filter too.
  await page.waitForFunction(() => document.querySelector(".entry.user") && !document.querySelector(".entry.agent"));
  await rest.post("v1/contexts", { thread_id: "live", source: "agent", text: "Not by a user." });
  await rest.post("v1/contexts", { thread_id: "live", source: "user", text: "By a user." });
  await page.getByText("By a user.").waitFor();
  assert.equal(await page.getByText("Not by a user.").count(), 0);
  await page.getByRole("radio", { name: "Everyone" }).check();
  await page.getByRole("combobox", { name: "Thread" }).selectOption("billing-service");
  await page.getByText("We chose PostgreSQL").waitFor();
  await rest.post("v1/contexts", { thread_id: "live", source: "user", text: "In another thread." });
  await rest.post("v1/contexts", { thread_id: "billing-service", source: "user", text: "In this thread." });
  await page.getByText("In this thread.").waitFor();
  assert.equal(await page.getByText("In another thread.").count(), 0);
  await page.reload();
  await page.getByText("In this thread.").waitFor();
  assert.equal(await page.getByRole("combobox", { name: "Thread" }).inputValue(), "billing-service");
  await rest.call("DELETE", `v1/contexts/${missed.context_id}`);
  await page.done();
  step("activity: changes, deletions, artifacts, pause, thread and source");
}

/** Checks what happens when the stream breaks or has a gap, and in a hidden tab. */
async function continueAfterCuts() {
  const page = await visit(proxied);
  await page.goto(`${proxied}/`);
  await page.getByText("live", { exact: true }).last().waitFor();
  const storeAndSee = async (text) => {
    await rest.post("v1/contexts", { thread_id: "live", source: "agent", text });
    await page.getByText(text).waitFor();
  };
  await storeAndSee("Before the cut.");
  page.expected.push("ERR_");

  // When the connection breaks, the page continues with the last cursor and shows no message.
  const before = opened.length;
  for (const stream of streams) stream.destroy();
  await storeAndSee("After the cut.");
  assert.equal(opened.length, before + 1);
  assert.match(opened.at(-1), /^A.{20}/);
  assert.equal(await page.locator(".trouble").count(), 0);

  // A slow reader continues too; after a gap the list is loaded again.
  for (const [reason, cursor] of [["SLOW_CONSUMER", /^A.{20}/], ["CURSOR_COMPACTED", /^now$/], ["RESYNC_REQUIRED", /^now$/]]) {
    const count = opened.length;
    for (const stream of streams) stream.end(`event: resync\ndata: {"reason":"${reason}"}\n\n`);
    await storeAndSee(`After ${reason}.`);
    await until(`a new stream after ${reason}`, () => opened.length > count);
    assert.match(opened.at(-1), cursor, reason);
    const texts = await page.locator(".entry .text").allTextContents();
    assert.deepEqual([new Set(texts).size, texts.filter((text) => text === "After the cut.").length], [texts.length, 1]);
  }

  // A hidden tab has no connection.
  const hide = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await until("the hidden tab closes its stream", () => streams.size === 0);
  await rest.post("v1/contexts", { thread_id: "live", source: "agent", text: "Stored while the tab was hidden." });
  assert.equal(await page.getByText("Stored while the tab was hidden.").count(), 0);
  await hide(false);
  await page.getByText("Stored while the tab was hidden.").waitFor();
  assert.match(opened.at(-1), /^A.{20}/);
  await page.done();
  step("the stream continues after a cut and a slow reader, begins again after a gap, and rests while the tab is hidden");
}

/** Shows many entries in a thread, and measures memory and time. It starts its own service. */
async function showMany() {
  const many = Number(process.env.PAGE_ENTRIES ?? 10_000);
  const own = await ownService(program);
  try {
    const client = new Rest(own.url);
    const page = await visit(own.url);
    await page.goto(`${own.url}/`);
    await page.getByText("Nothing is stored yet.").waitFor();
    const heap = await heapOf(page);
    const sizes = [];
    for (let from = 0; from < many; from += 100) {
      const entries = Array.from({ length: Math.min(100, many - from) }, (_, i) => ({ thread_id: "long", source: (from + i) % 3 === 0 ? "user" : "agent", text: `Note ${from + i}. ${"A sentence of some length. ".repeat((from + i) % 9)}`, metadata: { n: from + i } }));
      await client.post("v1/contexts/batch", { entries });
      if ((from + 100) % Math.max(many / 5, 100) === 0) sizes.push(await heap());
    }
    await page.getByText(`Note ${many - 1}.`).waitFor();
    assert.equal(await page.locator(".entry").count(), 200);
    step(`${many} live entries: ${sizes.map((size) => size.toFixed(1)).join(", ")} MiB of heap`);
    assert.ok(sizes.at(-1) < sizes[0] + 5, "the memory grows with what passes by");

    // The thread scrolls in both directions without gaps.
    const shown = () => page.locator(".talk .entry .text").evaluateAll((all) => all.map((one) => Number(/Note (\d+)/.exec(one.textContent)[1])));
    const scrollUntil = async (down, done) => {
      const deadline = Date.now() + 120 * SECONDS;
      for (;;) {
        const numbers = await shown();
        assert.deepEqual(numbers, Array.from(numbers, (_, i) => numbers[0] + i), "a gap, or a wrong order");
        assert.ok(numbers.length <= 200, "more entries on the page than it keeps");
        if (done(numbers)) return;
        assert.ok(Date.now() < deadline, `still at entries ${numbers[0]} to ${numbers.at(-1)} after 120 s`);
        await page.evaluate((down) => scrollTo({ top: down ? document.documentElement.scrollHeight : 0 }), down);
        await page.waitForTimeout(30);
      }
    };
    await page.goto(`${own.url}/#/threads/long`);
    await page.getByText(`Note ${many - 1}.`).waitFor();
    await scrollUntil(false, (numbers) => numbers[0] < many - 500);
    await scrollUntil(true, (numbers) => numbers.at(-1) === many - 1);
    await page.getByRole("button", { name: "Go to the first entry" }).click();
    await page.getByText("Note 0.", { exact: false }).first().waitFor();
    await scrollUntil(true, (numbers) => numbers[0] > 300);
    await scrollUntil(false, (numbers) => numbers[0] === 0);
    // Links to a part that the URL already names work too.
    await scrollUntil(true, (numbers) => numbers[0] > 300);
    await page.getByRole("button", { name: "Go to the first entry" }).dispatchEvent("click");
    await page.waitForFunction(() => /Note 0\./.test(document.querySelector(".talk .entry .text")?.textContent));
    await page.getByRole("link", { name: "Go to the newest" }).dispatchEvent("click");
    await page.getByText(`Note ${many - 1}.`).waitFor();
    await scrollUntil(false, (numbers) => numbers[0] < many - 500);
    await page.getByRole("link", { name: "Go to the newest" }).dispatchEvent("click");
    await page.getByText(`Note ${many - 1}.`).waitFor();
    step(`a thread of ${many} entries scrolls both ways, with at most 200 of them on the page`);

    for (let from = 0; from < 300; from += 100) {
      const entries = Array.from({ length: 100 }, (_, i) => ({ thread_id: "..", source: "agent", text: `Dot ${from + i}.` }));
      await client.post("v1/contexts/batch", { entries });
    }
    await page.goto(`${own.url}/#/threads/..`);
    await page.getByText("Dot 299.").waitFor();
    // Without scrolling to the button, which would load what is before the entries.
    await page.getByRole("button", { name: "Go to the first entry" }).dispatchEvent("click");
    await page.getByText("Dot 0.").first().waitFor();
    step("a thread is found although a browser drops its name from paths");

    const text = Array.from({ length: 17_000 }, (_, i) => `Line ${i + 1}: the quick brown fox jumps over the lazy dog.`).join("\n");
    const { context_id: large } = await client.post("v1/contexts", { thread_id: "large", source: "agent", text });
    await page.goto(`${own.url}/#/entry/${large}`);
    await page.getByRole("button", { name: /Show all [\d,]+ characters/ }).waitFor();
    const opens = await page.evaluate(timeOfView, ["Show all", ".block"]);
    await page.getByText("Line 17000:").waitFor();
    step(`a text of ${(text.length / 1e6).toFixed(1)} MB opens in ${Math.round(opens)} ms`);

    // These times are goals and not limits, because a machine may be busy.
    const { paint } = await firstPaint(page, own.url);
    step(`first paint with ${many} entries: ${Math.round(paint)} ms, the median of 10 (goal 300)`);
    const views = { activity: ".entry", threads: ".items li", "threads/long": ".talk .entry", "search?q=sentence&kind=fts": ".entry mark", artifacts: ".empty", health: ".card", connect: ".code" };
    const times = Object.entries(await viewChanges(page, own.url, views)).map(([view, time]) => `${view.replace(/\?.*/, "")} ${Math.round(time)}`);
    step(`a change of view with ${many} entries, medians of 10 in ms (goal 150): ${times.join(", ")}`);
    await page.done();
  } finally {
    await own.end();
  }
}

/** The service is stopped and started again: one line says so, and nothing is lost. */
async function surviveARestart() {
  const own = await ownService(program);
  try {
    const client = new Rest(own.url);
    const page = await visit(own.url);
    await client.post("v1/contexts", { thread_id: "live", source: "agent", text: "Before the restart." });
    await page.goto(`${own.url}/`);
    await page.getByText("Before the restart.").waitFor();
    page.expected.push("ERR_");
    await own.restart(async () => {
      await page.locator(".trouble").waitFor();
      assert.equal(await page.locator(".trouble").count(), 1);
      await page.getByText("Before the restart.").waitFor();
    });
    await page.locator(".trouble").waitFor({ state: "detached", timeout: 30 * SECONDS });
    await client.post("v1/contexts", { thread_id: "live", source: "agent", text: "After the restart." });
    await page.getByText("After the restart.").waitFor();
    await page.getByText("Before the restart.").waitFor();
    await page.done();
    step("a restart of the service is shown in one line, and the stream continues");
  } finally {
    await own.end();
  }
}

/** Finds a wrong memory and corrects it, counting the steps. */
async function correct(base) {
  const page = await visit(base);
  let steps = 0;
  const act = async (what) => {
    steps += 1;
    await what;
  };
  await page.goto(`${base}/`);
  await act(page.getByRole("link", { name: "Search" }).click());
  await act(page.getByRole("searchbox", { name: "What to search for" }).fill("tax rate for books"));
  await act(page.keyboard.press("Enter"));
  const entry = page.locator(`#entry-${wrong}`);
  await act(entry.getByRole("button", { name: `Edit entry ${wrong}` }).click());
  await act(entry.getByLabel("Text", { exact: true }).fill("The tax rate for books is 7 %."));
  await act(entry.getByRole("button", { name: "Save" }).click());
  await entry.getByText("The tax rate for books is 7 %.").waitFor();
  assert.equal((await rest.get(`v1/contexts/${wrong}`)).text_content, "The tax rate for books is 7 %.");
  step(`find and correct a wrong memory: ${steps} steps`);

  // When another client changes the entry meanwhile, both texts are shown, and only edited fields are replaced.
  page.expected.push("412");
  await entry.getByRole("button", { name: `Edit entry ${wrong}` }).click();
  await entry.getByLabel("Text", { exact: true }).fill("Mine.");
  await rest.call("PATCH", `v1/contexts/${wrong}`, { text: "Theirs.", tags: ["theirs"] });
  await entry.getByRole("button", { name: "Save" }).click();
  await entry.getByText("Someone changed this entry").waitFor();
  await entry.locator("pre", { hasText: "Theirs." }).waitFor();
  await accessible(page, "the conflict");
  await page.screenshot({ path: join(pictures, "conflict-light.png") });
  await entry.getByRole("button", { name: "Replace theirs with mine" }).click();
  await entry.locator(".text", { hasText: "Mine." }).waitFor();
  const after = await rest.get(`v1/contexts/${wrong}`);
  assert.deepEqual([after.text_content, after.tags], ["Mine.", ["theirs"]]);

  // Numbers that JavaScript would change survive an edit of the metadata.
  const exact = '{"big": 9007199254740993123, "one": 1.0, "deep": {"exact": 12345678901234567}}';
  await fetch(`${service}/v1/contexts/${wrong}`, { signal: AbortSignal.timeout(30 * SECONDS), method: "PATCH", headers: { "content-type": "application/json" }, body: `{"metadata": ${exact}}` });
  await page.goto(`${base}/#/entry/${wrong}`);
  await page.getByRole("button", { name: `Edit entry ${wrong}` }).click();
  const metadata = page.getByLabel(/^Metadata/).and(page.locator("textarea"));
  const shown = await metadata.inputValue();
  for (const number of ["9007199254740993123", "1.0", "12345678901234567"]) assert.ok(shown.includes(number), shown);
  await metadata.fill(shown.replace("{", '{"added": true,'));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("added").first().waitFor();
  const raw = await (await fetch(`${service}/v1/contexts/${wrong}`, { signal: AbortSignal.timeout(30 * SECONDS) })).text();
  for (const number of ["9007199254740993123", "1.0", "12345678901234567"]) assert.ok(raw.includes(number), raw);

  // Unsaved text outlives the view, and the deletion of the entry by another client. Line ends stay as they were.
  const { context_id: other } = await rest.post("v1/contexts", { thread_id: "edits", source: "user", text: "One.\r\nTwo." });
  await page.goto(`${base}/#/entry/${other}`);
  await page.getByRole("button", { name: `Edit entry ${other}` }).click();
  const text = page.getByLabel("Text", { exact: true });
  await text.fill("One.\nTwo.\nThree.");
  await page.getByRole("link", { name: "Health" }).click();
  await heading(page, "Health").waitFor();
  await page.goto(`${base}/#/threads/edits`);
  assert.equal(await text.inputValue(), "One.\nTwo.\nThree.");
  await page.getByRole("button", { name: "Save" }).click();
  await text.waitFor({ state: "detached" });
  assert.equal((await rest.get(`v1/contexts/${other}`)).text_content, "One.\r\nTwo.\r\nThree.");
  await page.getByRole("button", { name: `Edit entry ${other}` }).click();
  await text.fill("Not lost.");
  await rest.call("DELETE", `v1/contexts/${other}`);
  await rest.post("v1/contexts", { thread_id: "edits", source: "user", text: "Stored after the deletion." });
  await page.getByText("Stored after the deletion.").waitFor();
  assert.equal(await text.inputValue(), "Not lost.");
  await page.done();
  step("edit: conflict, metadata keeps its numbers, and unsaved text stays");
}

async function deleteAndTakeBack(base) {
  const { context_id: kept } = await rest.post("v1/contexts", { thread_id: "deletes", source: "user", text: "This one stays." });
  const { context_id: gone } = await rest.post("v1/contexts", { thread_id: "deletes", source: "user", text: "This one goes." });
  const { context_id: closed } = await rest.post("v1/contexts", { thread_id: "deletes", source: "user", text: "The tab is closed in time." });
  const page = await visit(base);
  await page.goto(`${base}/#/threads/deletes`);
  await page.getByRole("button", { name: `Delete entry ${kept}` }).click();
  await page.getByRole("button", { name: `Delete entry ${gone}` }).click();
  await page.locator(`#entry-${kept}`).getByRole("button", { name: "Undo" }).click();
  await page.locator(`#entry-${gone} .countdown`).waitFor();
  // First, because the rest may take longer than the page waits.
  assert.equal((await rest.get(`v1/contexts/${gone}`)).id, gone);
  await accessible(page, "a pending deletion");
  await page.screenshot({ path: join(pictures, "delete-light.png") });
  await page.locator(`#entry-${gone}`).waitFor({ state: "detached" });
  assert.equal((await fetch(`${service}/v1/contexts/${gone}`, { signal: AbortSignal.timeout(30 * SECONDS) })).status, 404);
  await page.getByRole("button", { name: `Delete entry ${closed}` }).click();
  await page.locator(`#entry-${closed} .countdown`).waitFor();
  await page.done();
  // This is longer than the page waits before it sends a deletion.
  await new Promise((resolve) => setTimeout(resolve, 11 * SECONDS));
  assert.equal((await rest.get(`v1/contexts/${closed}`)).id, closed);
  assert.equal((await rest.get(`v1/contexts/${kept}`)).id, kept);
  step("delete: sent after ten seconds, taken back by undo and by closing the tab");
}

async function readThread(base) {
  const page = await visit(base);
  await page.goto(`${base}/#/threads/heartbeat`);
  await page.getByText("Check 60: all").first().waitFor();
  await page.getByRole("img", { name: /^60 entries in 60 days/ }).waitFor();
  const uncounted = page.getByText("Only the newest 100,000 entries are counted. Earlier days are missing.");
  assert.equal(await uncounted.count(), 0);
  assert.equal(await page.getByText("Check 1: all").count(), 0);
  await page.evaluate(() => scrollTo({ top: 0 }));
  await page.getByText("Check 1: all").waitFor();
  const order = await page.locator(".talk .entry .text").allTextContents();
  assert.deepEqual(order.map((text) => Number(/Check (\d+)/.exec(text)[1])), Array.from({ length: 60 }, (_, i) => i + 1));

  // As the service replies for a thread with more entries than it counts.
  const counted = async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), complete: false, scanned: 100_000 } });
  };
  await page.route("**/v1/days?*", counted);
  await page.goto(`${base}/#/threads/transcripts`);
  await uncounted.waitFor();
  await accessible(page, "bars that lack days");
  await page.screenshot({ path: join(pictures, "uncounted-light.png") });
  await page.unroute("**/v1/days?*", counted);
  assert.equal(await page.getByText("Line 400:").count(), 0);
  await page.getByRole("button", { name: "Show the whole text" }).click();
  await page.getByRole("button", { name: /Show all [\d,]+ characters/ }).click();
  await page.getByText("Line 400:").waitFor();

  // No image is loaded before the user asks for it.
  await page.goto(`${base}/#/threads/${encodeURIComponent("incident/2026-11-14")}`);
  await page.getByText("The dashboard at the worst moment.").waitFor();
  assert.equal(await page.locator("img").count(), 0);
  await page.getByRole("button", { name: "Show the images" }).click();
  await page.waitForFunction(() => document.querySelector("img")?.naturalWidth === 320);
  await page.getByText(/image\/png · /).waitFor();
  await accessible(page, "an image");
  await page.locator("img").scrollIntoViewIfNeeded();
  await page.screenshot({ path: join(pictures, "image-light.png") });
  // Images that another client has replaced are not shown any more.
  const pictured = (await page.locator(".entry", { has: page.locator("img") }).getAttribute("id")).replace("entry-", "");
  await rest.call("PATCH", `v1/contexts/${pictured}`, { images: [{ data: picture(160, 70), mime_type: "image/png" }] });
  await page.getByRole("button", { name: "Show the images" }).click();
  await page.waitForFunction(() => document.querySelector("img")?.naturalWidth === 160);

  const link = await page.getByRole("link", { name: /Link to entry/ }).first().getAttribute("href");
  await page.goto("about:blank");
  await page.goto(`${base}/${link}`);
  await page.getByRole("link", { name: "What came before it in its thread" }).click();
  await page.locator(".entry.chosen").waitFor();
  await page.getByLabel("Filter threads by name").fill("ユーザー");
  await page.waitForFunction(() => document.querySelectorAll(".items li").length === 1);
  await page.getByLabel("Filter threads by name").fill("INCIDENT/");
  await page.locator(".items").getByText("incident/2026-11-14").waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".items li").length === 1);
  await page.getByLabel("Filter threads by name").fill("no such thread");
  await page.getByText("No thread has this in its name.").waitFor();
  await page.getByLabel("Filter threads by name").fill("");
  await page.waitForFunction(() => document.querySelectorAll(".items li").length > 3);
  await page.done();
  step("thread: entries over time, earlier entries, a long text, an image, a link to an entry, threads by name");
}

async function showEntriesOverTime(base) {
  const page = await visit(base);
  await page.goto(`${base}/#/health`);
  const { days } = await rest.get("v1/days");
  const bars = page.getByRole("img", { name: /^[\d,]+ entries in 60 days, at most / });
  await bars.waitFor();
  assert.equal(await bars.locator("rect").count(), 60);
  assert.equal(await bars.locator("rect.agent").count(), days.length);
  const total = Number(/^([\d,]+) entries/.exec(await bars.getAttribute("aria-label"))[1].replaceAll(",", ""));
  assert.ok(total >= days[0].entry_count, `${total} of ${days[0].entry_count}`);
  await rest.post("v1/contexts", { thread_id: "heartbeat", source: "agent", text: `An entry of today, ${Date.now()}.` });
  await page.waitForFunction((before) => {
    const label = /^([\d,]+) entries in/.exec(document.querySelector(".over-time svg")?.getAttribute("aria-label") ?? "");
    return label !== null && Number(label[1].replaceAll(",", "")) > before;
  }, total);
  await bars.scrollIntoViewIfNeeded();
  await page.screenshot({ path: join(pictures, "over-time-light.png") });
  await page.done();
  step("health: entries over time, live");
}

async function readHowToTurnFeaturesOn() {
  const own = await ownService(program, () => ["--enable-fts=false", "--enable-reranking=false"]);
  try {
    const page = await visit(own.url);
    await page.goto(`${own.url}/#/health`);
    for (const setting of ["ENABLE_FTS", "ENABLE_RERANKING"]) await page.getByText(`Set ${setting}=auto and start the service again.`).first().waitFor();
    await page.done();
  } finally {
    await own.end();
  }
  step("health: the setting that switched a feature off");
}

async function searchEachWay(base) {
  const page = await visit(base);
  await page.goto(`${base}/#/search`);
  const box = page.getByRole("searchbox", { name: "What to search for" });
  await box.fill("tax index dropped");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.getByText(/results? in [\d.]+ ms, by words/).waitFor();
  if (semantic) {
    await page.getByRole("radio", { name: "Meaning" }).check();
    await page.getByText(/^distance /).first().waitFor();
  }
  await page.getByRole("radio", { name: "Words" }).check();
  await page.locator(".entry mark").first().waitFor();
  await page.getByLabel("How the words are read").selectOption("phrase");
  await page.getByText("Nothing was found.").waitFor();
  // The page says why an entry is not found.
  const { results } = await rest.post("v1/contexts/search/fts", { query: "checkout rose" });
  let steps = 0;
  const act = async (what) => {
    steps += 1;
    await what;
  };
  await act(page.getByText("An entry is missing here?").click());
  const wanted = page.getByLabel("Its number, or some of its words");
  await act(wanted.fill("checkout rose"));
  await act(page.keyboard.press("Enter"));
  await act(page.getByRole("button", { name: `#${results[0].id}` }).click());
  await page.getByText("It does not match the words in the mode “phrase”.").waitFor();
  await wanted.fill("no such words anywhere zyxw");
  await page.keyboard.press("Enter");
  await page.getByText("No entry has these words.").or(page.getByText("Which one is it?")).waitFor();
  await wanted.fill(String(results[0].id));
  await page.getByRole("button", { name: "Find out why" }).click();
  await page.getByText("It does not match the words in the mode “phrase”.").waitFor();
  await accessible(page, "why an entry is missing");
  await page.screenshot({ path: join(pictures, "missing-light.png"), fullPage: true });
  step(`find out why a search did not find something: ${steps} steps`);

  await page.getByRole("radio", { name: "Filters only" }).check();
  await page.getByRole("button", { name: "Condition on metadata" }).click();
  // The keys, values and tags that exist are offered, also those of nested objects.
  for (const key of ["severity", "host.region"]) await page.locator(`#known-keys option[value="${key}"]`).waitFor({ state: "attached" });
  await page.locator('#known-tags option[value="root-cause"]').waitFor({ state: "attached" });
  await page.getByLabel("Metadata key").fill("migration");
  await page.locator('#known-values-0 option[value=\'"0040"\']').waitFor({ state: "attached" });
  await page.getByLabel("Metadata key").fill("severity");
  await page.locator('#known-values-0 option[value="2"]').waitFor({ state: "attached" });
  await page.waitForFunction(() => document.querySelectorAll("#known-values-0 option").length === 1);
  await page.getByLabel("Comparison").selectOption("gte");
  await page.getByRole("combobox", { name: "Value" }).fill("2");
  await page.getByRole("combobox", { name: /^Tags/ }).fill("root-cause, follow-up");
  await page.getByRole("button", { name: "Apply the filters" }).click();
  await page.waitForFunction(() => document.querySelectorAll(".entry").length === 2);
  await page.getByText("This search as a command").click();
  await accessible(page, "the filters and commands");
  await page.screenshot({ path: join(pictures, "filters-light.png"), fullPage: true });
  const commands = await page.locator(".commands pre").allInnerTexts();
  const body = { tags: ["root-cause", "follow-up"], metadata_filters: [{ key: "severity", operator: "gte", value: 2 }] };
  assert.ok(commands[0].includes(`'${JSON.stringify(body)}'`) && commands[0].includes(`${base}/v1/contexts/search`), commands[0]);
  assert.ok(commands[1].includes('"value":{"int_value":"2"}') && commands[1].includes("ContextService/SearchContext"), commands[1]);
  assert.deepEqual(JSON.parse(commands[2]).params, { name: "search_context", arguments: body });
  // The copied text is the text that is shown.
  await page.locator(".commands").getByRole("button", { name: "Copy" }).first().click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), commands[0]);
  // A browser may refuse to copy.
  await page.evaluate(() => {
    navigator.clipboard.writeText = () => Promise.reject(new Error("refused"));
    document.execCommand = () => false;
  });
  await page.locator(".commands").getByRole("button", { name: "Copy" }).first().click();
  await page.getByText("Not copied").first().waitFor();
  await page.goBack();
  await page.waitForFunction(() => !location.hash.includes("where"));

  // A suggested value finds its entry, whichever characters it has.
  const value = String.raw`say "hi", C:\ok`;
  await rest.post("v1/contexts", { thread_id: "quotes", source: "user", text: "With a quoted value.", metadata: { spoken: value } });
  await page.goto(`${base}/#/search?kind=filters&where=${encodeURIComponent(JSON.stringify([["spoken", "in", "x"]]))}`);
  const offered = page.locator("#known-values-0 option");
  await offered.waitFor({ state: "attached" });
  await page.getByRole("combobox", { name: "Value" }).fill(await offered.getAttribute("value"));
  await page.getByRole("button", { name: "Apply the filters" }).click();
  await page.locator(".entry", { hasText: "With a quoted value." }).waitFor();
  await page.done();
  step("search: each kind, filters, commands");
}

async function compareAndRestore(base) {
  const page = await visit(base);
  await page.goto(`${base}/#/artifacts/${plan}`);
  await page.getByRole("button", { name: "Changes of version 4" }).click();
  await page.getByText("From version 3 to 4").waitFor();
  await page.getByRole("radio", { name: "Side by side" }).check();
  await page.locator(".diff .two").waitFor();
  await page.getByRole("radio", { name: "Inline" }).check();
  await page.locator(".diff tr.added").first().waitFor();
  await page.locator(".versions li", { hasText: /^2/ }).getByRole("button").first().click();
  await page.getByRole("button", { name: "Compare with the current one" }).click();
  await page.getByText("From version 2 to 4").waitFor();
  await page.goto(`${base}/#/artifacts/${plan}?version=2`);
  await page.getByRole("button", { name: "Restore version 2" }).click();
  await page.getByText("Version 2 is restored, as version 5.").waitFor();
  await page.getByText("5, current").waitFor();
  const artifact = await rest.get(`v1/artifacts/${plan}`);
  assert.ok(artifact.version === 5 && !artifact.content.includes("one region"), JSON.stringify(artifact));
  await page.getByLabel("Find in titles and contents").fill("riskiest");
  await page.waitForFunction(() => document.querySelectorAll(".items li").length === 1);
  await page.done();
  step("artifacts: versions, both diffs, restore, search");
}

async function keyboardOnly(base) {
  const page = await visit(base);
  await page.goto(`${base}/#/health`);
  await heading(page, "Health").waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  for (let i = 0; i < 20 && (await page.evaluate(() => document.activeElement.textContent)) !== "Threads"; i += 1) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await heading(page, "Threads").waitFor();
  await page.waitForFunction(() => document.activeElement.tagName === "H1");
  for (let i = 0; i < 20 && !(await page.evaluate(() => document.activeElement.matches(".items a"))); i += 1) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.locator(".talk .entry").first().waitFor();
  // The focus must be visible.
  for (let i = 0; i < 12; i += 1) {
    await page.keyboard.press("Tab");
    const visible = await page.evaluate(() => {
      const { activeElement: element } = document;
      const style = getComputedStyle(element);
      const box = element.getBoundingClientRect();
      return element === document.body || (style.outlineStyle !== "none" && box.width > 0 && box.bottom > 0 && box.top < innerHeight);
    });
    assert.ok(visible, await page.evaluate(() => document.activeElement.outerHTML));
  }
  await page.done();
  step("the keyboard alone reaches a thread and its entries");
}

/** With site data blocked, a page without keys needs no sign-in. */
async function openWithoutSiteData(base) {
  const page = await visit(base);
  await page.addInitScript(() => {
    for (const name of ["localStorage", "sessionStorage"]) {
      Object.defineProperty(window, name, {
        get() {
          throw new DOMException("blocked", "SecurityError");
        },
      });
    }
  });
  await page.goto(`${base}/`);
  await page.locator(".entry").first().waitFor();
  await page.done();
  step("the page opens while site data is blocked");
}

async function surviveAnOutage() {
  const page = await visit(proxied);
  await page.goto(`${proxied}/`);
  await page.locator(".entry").first().waitFor();
  page.expected.push("ERR_");
  reachable = false;
  proxy.closeAllConnections();
  await page.getByText("The service does not respond. Trying again…").waitFor();
  await accessible(page, "an outage");
  await page.screenshot({ path: join(pictures, "outage-light.png") });
  await rest.post("v1/contexts", { thread_id: "live", source: "agent", text: "Stored during the outage." });
  reachable = true;
  await page.getByText("Stored during the outage.").waitFor({ timeout: 30 * SECONDS });
  await page.getByText("The service does not respond.").waitFor({ state: "detached" });
  await page.done();
  step("below a path, an outage is shown in one line, and the page recovers by itself");
}

/** The page of a service that a gateway started: it has a port only for the page. */
async function openWithoutAPort() {
  const folder = await mkdtemp(join(tmpdir(), "opened-"));
  const database = join(folder, "context.db");
  try {
    await openFrom(folder, database);
  } finally {
    await endServices(database);
    await rm(folder, { recursive: true, force: true });
  }
  step("context-gateway open shows what a service without a port has stored, live, and only to those who have the link");
}

async function openFrom(folder, database) {
  const env = { PATH: process.env.PATH, HOME: folder, XDG_RUNTIME_DIR: folder, DB_PATH: database };
  const gateway = (...given) => execFileSync(join(dirname(program), "context-gateway"), given, { env, encoding: "utf8", timeout: 60 * SECONDS }).trim();
  gateway("add", "--thread", "notes", "We chose SQLite for the first version.");
  const url = new URL(gateway("open", "--print"));
  assert.match(url.hash, /^#open=/);
  const page = await visit(url.origin);
  await page.goto(url.href);
  await page.getByText("We chose SQLite").first().waitFor();
  assert.equal(new URL(page.url()).hash.includes("open="), false);
  assert.deepEqual(await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]), [0, 0, ""]);
  gateway("add", "--thread", "notes", "And PostgreSQL for the second.");
  await page.getByText("And PostgreSQL for the second.").first().waitFor();
  await page.getByRole("link", { name: "Connect" }).click();
  await heading(page, "Connect").waitFor();
  await accessible(page, "connecting to a service without a port");
  await page.screenshot({ path: join(pictures, "opened-connect-light.png") });
  await page.getByLabel("curl", { exact: true }).check();
  const command = await page.locator("pre").first().innerText();
  const stored = execFileSync("sh", ["-c", command], { encoding: "utf8", timeout: 60 * SECONDS });
  assert.equal(JSON.parse(stored).thread_id, "hello", stored);
  await page.getByRole("link", { name: "Health" }).click();
  await page.getByText("this port accepts only pages that “context-gateway open” opened").waitFor();
  // What was opened is gone after a reload, and its link is used up.
  page.expected.push("401");
  for (const reopen of [() => page.reload(), () => page.goto(url.href)]) {
    await reopen();
    await heading(page, "This page is closed").waitFor();
  }
  await accessible(page, "a closed page");
  await page.screenshot({ path: join(pictures, "closed-light.png") });
  await page.goto(gateway("open", "--print"));
  await heading(page, "Activity").waitFor();
  await page.done();
}

/** Ends the services that gateways started for a database. They are no children of this process. */
async function endServices(database) {
  const names = await readdir("/proc").catch(() => []);
  // A process that has ended has no environment, also before its parent has noticed.
  const serves = async (pid) => (await readFile(`/proc/${pid}/environ`, "utf8").catch(() => "")).split("\0").includes(`DB_PATH=${database}`);
  for (const pid of names.filter((name) => /^\d+$/.test(name))) {
    if (!(await serves(pid))) continue;
    try {
      process.kill(Number(pid), "SIGTERM");
    } catch {
      continue; // It has ended meanwhile.
    }
    await until(`process ${pid} ends`, async () => !(await serves(pid)));
  }
}

async function signInAndManageKeys() {
  await seed(keyedService, key);
  const page = await visit(keyedService);
  page.expected.push("401", "400", "404", "403");
  await page.goto(`${keyedService}/`);
  await heading(page, "Sign in").waitFor();
  await accessible(page, "signing in");
  await page.screenshot({ path: join(pictures, "signin-light.png") });
  await page.getByLabel("API key or token").fill("sk_prod_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("This key or token is not accepted").waitFor();
  await page.getByLabel("API key or token").fill("sk_prod_…");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("This is not a whole key or token").waitFor();
  await page.getByLabel("API key or token").fill(key);
  await page.keyboard.press("Enter");
  await heading(page, "Activity").waitFor();
  assert.deepEqual(await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie, location.href.includes("sk_prod")]), [0, 0, "", false]);

  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByRole("button", { name: "New key" }).click();
  await page.getByLabel(/^Name/).fill("reader <b>of</b> “billing”");
  for (const scope of ["write", "delete"]) await page.getByLabel(new RegExp(`^${scope}`)).uncheck();
  await accessible(page, "a new key");
  await page.screenshot({ path: join(pictures, "newkey-light.png") });
  await page.getByRole("button", { name: "Create" }).click();
  const made = (await page.locator(".made pre").innerText()).trim();
  assert.match(made, /^sk_prod_/);
  await page.screenshot({ path: join(pictures, "keys-light.png") });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.screenshot({ path: join(pictures, "keys-dark.png") });
  await accessible(page, "keys (dark)");
  await page.emulateMedia({ colorScheme: "light" });
  await page.getByRole("button", { name: "I have stored it" }).click();
  await page.screenshot({ path: join(pictures, "keylist-light.png") });

  // The text that connects a client has a key that works.
  let steps = 0;
  const act = async (what) => {
    steps += 1;
    await what;
  };
  await act(page.getByRole("link", { name: "Connect" }).click());
  await act(page.getByRole("button", { name: "Put a new key in it" }).click());
  await page.getByText("This is a new key, “Claude Code”.").waitFor();
  await act(page.locator(".code").getByRole("button", { name: "Copy" }).click());
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const given = /CONTEXT_API_KEY=(sk_prod_[\w-]+)/.exec(command)?.[1];
  assert.ok((await new Rest(keyedService, given).get("v1/statistics")).total_entries > 0, command);
  await accessible(page, "connect, with a key");
  step(`connect a new client: ${steps} steps, with a key of its own`);
  await page.getByRole("link", { name: "Keys" }).click();

  // The new key has no scope that the key of the page lacks.
  const { key: keeper } = await new Rest(keyedService, key).post("v1/api-keys", { name: "keeper", scopes: ["read", "manage"] });
  const keeping = await visit(keyedService);
  keeping.expected.push("401", "400", "404", "403");
  await keeping.goto(`${keyedService}/#/connect`);
  await keeping.getByLabel("API key or token").fill(keeper);
  await keeping.keyboard.press("Enter");
  await keeping.getByRole("button", { name: "Put a new key in it" }).click();
  await keeping.getByText("This is a new key, “Claude Code”.").waitFor();
  await keeping.done();

  // Actions that the key may not do are absent.
  const reader = await visit(keyedService);
  reader.expected.push("401", "400", "404", "403");
  await reader.goto(`${keyedService}/#/threads/billing-service`);
  await reader.getByLabel("API key or token").fill(made);
  await reader.keyboard.press("Enter");
  await reader.getByText("We chose PostgreSQL").waitFor();
  assert.equal(await reader.getByRole("button", { name: /^(Edit|Delete) entry/ }).count(), 0);
  assert.equal(await reader.getByRole("link", { name: "Keys" }).count(), 0);

  // A deactivated key stops working within seconds.
  const row = page.locator(".keys li", { hasText: "reader" });
  await row.getByRole("button", { name: "Deactivate" }).click();
  await row.getByRole("button", { name: "Deactivate for good" }).click();
  await row.getByText("deactivated").waitFor();
  await reader.getByText("This key or token is not accepted").waitFor();
  await reader.done();
  await page.getByRole("button", { name: "Sign out" }).click();
  await heading(page, "Sign in").waitFor();
  await page.done();
  step("keys: sign in, create, what a key may not do is absent, deactivate, sign out");
}

/** Signs in through an issuer, whose only person is signed in at once. */
async function signInWithTheIssuer() {
  let issuer;
  let url;
  const own = await ownService(program, async (base) => {
    issuer = spawn(join(dirname(program), "context-test-issuer"), ["the page", "s3 cret", `${base}/`], { stdio: ["pipe", "pipe", "inherit"] });
    const [line] = await once(issuer.stdout, "data", { signal: AbortSignal.timeout(30 * SECONDS) });
    url = String(line).trim();
    const client = ["--oidc-client-id=the page", "--oidc-client-secret=s3 cret", `--oidc-redirect-url=${base}/`];
    return ["--auth=oidc", `--oidc-issuer=${url}`, "--oidc-audience=the page", ...client];
  });
  try {
    const page = await visit(own.url);
    page.issuer = url;
    page.expected.push("401", "400", "404", "403");
    const button = page.getByRole("button", { name: `Sign in with ${new URL(url).host}` });
    const left = () => page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie, location.search]);
    await page.goto(`${own.url}/`);
    await button.waitFor();
    await accessible(page, "signing in with an issuer");
    await page.screenshot({ path: join(pictures, "issuer-light.png") });
    await page.emulateMedia({ colorScheme: "dark" });
    await accessible(page, "signing in with an issuer (dark)");
    await page.screenshot({ path: join(pictures, "issuer-dark.png") });
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 390, height: 844 });
    await page.screenshot({ path: join(pictures, "issuer-narrow.png") });
    await page.setViewportSize({ width: 1360, height: 900 });

    // While the browser is at the issuer, only the state and the verifier are stored. Status 204 leaves the page open.
    const issuerAnswers = async (answer) => {
      await page.route(`${url}/authorize?*`, (route) => route.fulfill(answer(new URL(route.request().url()).searchParams)));
      await button.click();
      await page.waitForFunction(() => sessionStorage.length > 0 || document.querySelector(".trouble"));
    };
    await issuerAnswers(() => ({ status: 204 }));
    const stored = await page.evaluate(() => Object.entries(sessionStorage));
    assert.deepEqual(stored.map(([name, value]) => [name, Object.keys(JSON.parse(value)).sort()]), [["sign-in", ["state", "verifier"]]]);
    await page.unroute(`${url}/authorize?*`);

    await button.click();
    await heading(page, "Activity").waitFor();
    assert.deepEqual(await left(), [0, 0, "", ""]);
    const parameters = new URL(page.authorizations.at(-1)).searchParams;
    assert.deepEqual([...parameters.keys()].sort(), ["client_id", "code_challenge", "code_challenge_method", "nonce", "redirect_uri", "response_type", "scope", "state"]);
    assert.deepEqual([parameters.get("code_challenge_method"), parameters.get("code_challenge").length, parameters.get("state").length], ["S256", 43, 43]);

    // The token is gone after a reload. A code that this tab did not ask for is not exchanged.
    await page.reload();
    await button.waitFor();
    for (const forged of ["code=code-7&state=forged", "code=code-7", "error=access_denied&state=forged"]) {
      await page.goto(`${own.url}/?${forged}`);
      await page.getByText("This sign-in was not begun in this tab.").waitFor();
      assert.deepEqual(await left(), [0, 0, "", ""]);
    }
    // Nor is one whose state is not that of this tab.
    const sendBack = (query) => issuerAnswers((parameters) => ({ status: 302, headers: { location: `${own.url}/?${query(parameters.get("state"))}` } }));
    await sendBack((state) => `code=code-7&state=${state.toLowerCase()}x`);
    await page.getByText("This sign-in was not begun in this tab.").waitFor();
    await page.unroute(`${url}/authorize?*`);
    await page.goto(`${own.url}/`);

    // What the issuer refuses is shown as text.
    await sendBack((state) => `error=${encodeURIComponent("<img src=x onerror=ran()>")}&error_uri=javascript:ran()&state=${state}`);
    await page.getByText("The issuer did not sign you in (<img src=x onerror=ran()>).").waitFor();
    assert.deepEqual(await page.evaluate(suspects), []);
    assert.deepEqual(await left(), [0, 0, "", ""]);
    await accessible(page, "a refused sign-in");
    await page.screenshot({ path: join(pictures, "issuer-refused-light.png") });
    await page.unroute(`${url}/authorize?*`);
    await page.goto(`${own.url}/`);
    await sendBack((state) => `code=forged&state=${state}`);
    await page.getByText("the issuer's code or token is not accepted; sign in again").waitFor();
    await page.unroute(`${url}/authorize?*`);
    await page.goto(`${own.url}/`);

    await button.click();
    await heading(page, "Activity").waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await button.waitFor();
    await page.done();

    // A page at another address names the one to which the issuer sends the browser back.
    const local = own.url.replace("127.0.0.1", "localhost");
    const other = await visit(local);
    other.expected.push("401");
    await other.goto(`${local}/`);
    assert.equal(await other.getByRole("link", { name: own.url }).getAttribute("href"), `${own.url}/`);
    assert.equal(await other.getByRole("button", { name: /Sign in with 127/ }).count(), 0);
    await other.done();
    step("sign in with an issuer: code, PKCE, nonce; nothing is left in the browser; a forged code or state is refused");
  } finally {
    issuer.stdin.end();
    await own.end();
  }
}

/** Stored text never runs as a script, in whichever view it is shown. */
async function showTheCorpus(base) {
  const page = await visit(base);
  await page.goto(`${base}/#/activity`);
  await page.locator(".entry").first().waitFor();
  // Its artifacts come one by one, after the batches of entries: the list shows what the stream brought.
  const images = await storeCorpus(rest, picture(40, 40));
  await page.locator(".entry.line a", { hasText: "ran()" }).first().waitFor();
  assert.deepEqual(await page.evaluate(suspects), [], "activity, live");
  const everywhere = async (hash, shown) => {
    await page.goto("about:blank");
    await page.goto(`${base}/${hash}`);
    await shown.waitFor();
    await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
    assert.deepEqual(await page.evaluate(suspects), [], hash);
  };
  await everywhere("#/activity", page.locator(".entry").first());
  await everywhere("#/threads", page.locator(".items li").nth(200));
  await everywhere("#/artifacts", page.locator(".items li").nth(40));
  for (const kind of ["fts", "hybrid"]) await everywhere(`#/search?q=findme&kind=${kind}`, page.locator(".entry").nth(19));
  await everywhere("#/search?kind=filters&tags=x", page.getByText("Nothing was found."));
  for (let i = 0; i < CORPUS.length; i += 8) {
    const text = CORPUS[i];
    await everywhere(`#/threads/${encodeURIComponent(text.trim().slice(0, 256))}`, page.locator(".talk .entry").first());
    await everywhere(`#/search?q=${encodeURIComponent(text)}&kind=fts`, page.locator(".outcome, .trouble").first());
  }
  const { result } = await rest.get("v1/artifacts?limit=50");
  for (const { id } of result.slice(0, 12)) {
    await everywhere(`#/artifacts/${id}`, page.locator(".versions").first());
    await everywhere(`#/artifacts/${id}?version=2&against=1`, page.locator(".diff, .empty").first());
  }
  // A lone carriage return ends no line.
  const { id: torn } = await rest.post("v1/artifacts", { content: "same\rold\n" });
  await rest.call("PATCH", `v1/artifacts/${torn}`, { content: "same\rnew\n" });
  await everywhere(`#/artifacts/${torn}?version=2&against=1`, page.locator(".minus", { hasText: "1 line removed" }));
  for (const id of images) {
    await everywhere(`#/entry/${id}`, page.getByRole("button", { name: "Show the images" }));
    await page.getByRole("button", { name: "Show the images" }).click();
    await page.locator(".images figure").first().waitFor();
    await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
    assert.deepEqual(await page.evaluate(suspects), [], `the images of entry ${id}`);
  }
  await page.goto(`${base}/#/search?q=findme&kind=fts`);
  await page.locator(".entry").first().getByRole("button", { name: /^Edit entry/ }).click();
  await page.locator(".editor").waitFor();
  await page.goto(`${base}/#/activity`);
  await page.locator(".entry").first().waitFor();
  await page.screenshot({ path: join(pictures, "corpus-light.png") });
  await page.setViewportSize({ width: 390, height: 844 });
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(overflow, 0, "stored text makes the page scroll sideways");
  await page.done();
  step(`${CORPUS.length} texts that would run as HTML stay text`);
}

/** Elements and attributes that only a stored text could have brought. */
function suspects() {
  const found = [];
  for (const element of document.querySelectorAll("*")) {
    if (element.closest("head")) continue;
    if (["SCRIPT", "IFRAME", "OBJECT", "EMBED", "STYLE", "BASE", "META", "LINK", "MARQUEE"].includes(element.tagName.toUpperCase())) found.push(element.outerHTML.slice(0, 200));
    for (const { name, value } of element.attributes) {
      if (/^on/.test(name) || (/^(?:href|src|action|formaction)$/.test(name) && /^\s*(?:javascript|data|vbscript):/i.test(value))) found.push(`${name}=${value}`.slice(0, 200));
    }
  }
  return found;
}

const STEPS = {
  look: () =>
    visitEveryView(service, [
      ["light", {}],
      ["dark", { colorScheme: "dark" }],
      ["narrow", { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }],
    ]),
  path: () => visitEveryView(proxied, [["proxied", { viewport: { width: 1024, height: 768 } }]]),
  activity: () => followActivity(service),
  cuts: continueAfterCuts,
  restart: surviveARestart,
  many: showMany,
  thread: () => readThread(service),
  search: () => searchEachWay(service),
  health: () => showEntriesOverTime(service),
  features: readHowToTurnFeaturesOn,
  edit: () => correct(service),
  delete: () => deleteAndTakeBack(service),
  artifacts: () => compareAndRestore(service),
  keyboard: () => keyboardOnly(service),
  blocked: () => openWithoutSiteData(service),
  outage: surviveAnOutage,
  open: openWithoutAPort,
  keys: signInAndManageKeys,
  issuer: signInWithTheIssuer,
  corpus: () => showTheCorpus(service),
};

try {
  for (const [name, run] of Object.entries(STEPS)) {
    if (only.length === 0 || only.includes(name)) await run();
  }
} finally {
  await browser.close();
  proxy.close();
  proxy.closeAllConnections();
}
