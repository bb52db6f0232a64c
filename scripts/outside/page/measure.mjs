// Measures the page with a large store. Run by hand, on a quiet machine, with a release build (docs/page.md).
//
//   node measure.mjs CHROMIUM PROGRAM [ENTRIES [LIVE [THREAD]]]
//
// Fills a service of its own with ENTRIES entries (100 000): 60 % in one thread, the rest in 400 others. Prints the
// first paint and each change of view, medians of 10. Then stores LIVE entries (10 000) while Activity is open, and
// prints the heap of the tab before them and after each fifth of them. With THREAD the long thread grows to that many
// entries, and is scrolled.

import assert from "node:assert/strict";
import os from "node:os";

import { chromium } from "playwright-core";

import { ownService } from "./own.mjs";
import { Rest } from "./rest.mjs";
import { firstPaint, heapOf, viewChanges } from "./times.mjs";

const [executablePath, program, entries = 100_000, live = 10_000, long = 0] = process.argv.slice(2).map((value, i) => (i < 2 ? value : Number(value)));
/** The largest batch of the API. */
const BATCH = 100;
const load = () => os.loadavg()[0].toFixed(1);

const entry = (n, thread) => ({
  thread_id: thread,
  source: n % 3 === 0 ? "user" : "agent",
  text: `Note ${n}. ${"A sentence of some length. ".repeat(n % 9)}`,
  tags: [`tag-${n % 50}`],
  metadata: { n, severity: n % 5, host: { name: `host-${n % 20}` } },
});

const own = await ownService(program);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
try {
  const client = new Rest(own.url);
  const store = async (count, from, thread) => {
    for (let at = from; at < from + count; at += BATCH) {
      const size = Math.min(BATCH, from + count - at);
      await client.post("v1/contexts/batch", { entries: Array.from({ length: size }, (_, i) => entry(at + i, thread(at + i))) });
    }
  };
  const began = Date.now();
  await store(entries, 0, (n) => (n % 10 < 6 ? "long" : `thread/${Math.floor(n / 10) % 400}`));
  for (let n = 0; n < 200; n += 1) await client.post("v1/artifacts", { title: `Artifact ${n}`, content: `The content of artifact ${n}.\n`.repeat(1 + (n % 20)) });
  console.log(`${entries} entries and 200 artifacts, stored in ${Math.round((Date.now() - began) / 1000)} s`);

  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on("pageerror", (error) => {
    throw error;
  });
  const paint = await firstPaint(page, own.url);
  const { total_threads: threads } = await client.get("v1/threads?limit=1");
  console.log(`${threads} threads; load of the machine ${load()}; medians of 10 in ms`);
  console.log(`  first paint ${Math.round(paint.paint)} (goal 300), first entries ${Math.round(paint.entries)}`);
  const views = {
    activity: ".entry",
    threads: ".items li",
    "threads/long": ".talk .entry",
    "threads/thread%2F7": ".talk .entry",
    "search?q=sentence&kind=fts": ".entry mark",
    "search?q=sentence&kind=hybrid": ".entry",
    "search?kind=filters&tags=tag-7": ".entry",
    artifacts: ".items li",
    health: ".card",
    connect: ".code",
  };
  for (const [view, time] of Object.entries(await viewChanges(page, own.url, views))) console.log(`  ${view.padEnd(32)} ${String(Math.round(time)).padStart(5)} (goal 150)`);

  await page.goto(`${own.url}/#/activity`);
  await page.locator(".entry").first().waitFor();
  const heap = await heapOf(page);
  const sizes = [await heap()];
  for (let passed = 0; passed < live; passed += live / 5) {
    await store(live / 5, entries + passed, () => "live");
    await page.getByText(`Note ${entries + passed + live / 5 - 1}.`).waitFor();
    sizes.push(await heap());
  }
  console.log(`load of the machine ${load()}; heap of the tab while ${live} entries arrive: ${sizes.map((size) => size.toFixed(1)).join(", ")} MiB`);
  // The first size is before the list is full.
  assert.ok(sizes.at(-1) < sizes[1] + 5, "the memory grows with what passes by");

  if (long > 0) {
    const count = (await client.get("v1/threads?name=long&limit=1")).threads[0].entry_count;
    await store(Math.max(long - count, 0), 10_000_000, () => "long");
    await page.goto(`${own.url}/#/threads/long`);
    await page.locator(".talk .entry").first().waitFor();
    const first = () => page.evaluate(() => document.querySelector(".talk .entry").id);
    const scrolls = async (top, pages) => {
      const times = [];
      for (let i = 0; i < pages; i += 1) {
        const before = await first();
        const start = Date.now();
        await page.evaluate((top) => scrollTo({ top: top ? 0 : document.documentElement.scrollHeight }), top);
        await page.waitForFunction((before) => document.querySelector(".talk .entry").id !== before, before);
        times.push(Date.now() - start);
        assert.ok((await page.locator(".talk .entry").count()) <= 200, "more entries on the page than it keeps");
      }
      return times.toSorted((a, b) => a - b)[Math.floor(pages / 2)];
    };
    // At the top the page loads earlier entries, so each load changes the first entry.
    const up = await scrolls(true, 40);
    await page.getByRole("button", { name: "Go to the first entry" }).click();
    const start = Date.now();
    await page.getByText("Note 0.", { exact: false }).first().waitFor();
    const jump = Date.now() - start;
    console.log(`load of the machine ${load()}; a thread of ${Math.max(long, count)} entries: 40 pages up, each in ${up} ms (median); its first entry after ${jump} ms; heap ${(await heap()).toFixed(1)} MiB`);
  }
} finally {
  await browser.close();
  await own.end();
}
