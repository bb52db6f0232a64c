// Keeps a copy of all context entries in a JSON file: a snapshot first, then each change. The file also has the cursor
// of its entries, so the program can be stopped at any time.
//
//   npm install && npm run generate && npm run build && node build/follow.js copy.json [URL]

import { readFile, rename, writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

import { events } from "./events.js";
import type { components } from "./openapi.d.ts";

type Copy = { cursor?: string; entries: Record<string, components["schemas"]["Entry"]> };

const [file = "copy.json", url = "http://127.0.0.1:7420"] = process.argv.slice(2);
const key = process.env["CONTEXT_API_KEY"];
let copy: Copy = await readFile(file, "utf8").then(JSON.parse, () => ({ entries: {} }));

/** Checks the copy every 200 ms and saves it if its cursor has changed. An incomplete copy has no cursor. */
async function save(): Promise<never> {
  for (let saved = copy.cursor; ; await sleep(200)) {
    if (copy.cursor === saved || copy.cursor === undefined) continue;
    saved = copy.cursor;
    await writeFile(`${file}.new`, JSON.stringify(copy));
    await rename(`${file}.new`, file);
  }
}

/** Applies one stream to the copy. Returns the reason that its last frame gives. */
async function follow(): Promise<string | undefined> {
  const next: Copy = copy.cursor === undefined ? { entries: {} } : copy;
  const stop = new AbortController();
  const silence = setTimeout(() => stop.abort(), 30_000); // The service sends a frame every 15 seconds.
  const headers = new Headers(copy.cursor === undefined ? {} : { "Last-Event-ID": copy.cursor });
  if (key) headers.set("Authorization", `Bearer ${key}`);
  try {
    const response = await fetch(`${url}/v1/watch?snapshot=true&entity=context&include_body=true`, { headers, signal: stop.signal });
    if (response.status === 429 || response.status >= 500) return undefined;
    if (response.status === 410) return "RESYNC_REQUIRED";
    if (!response.ok || response.body === null) throw new Error(await response.text());
    for await (const { event, id, data } of events(response.body)) {
      silence.refresh();
      if (event === "resync" || event === "end") return data.reason;
      if (data.id !== undefined && data.context && event !== "left") next.entries[data.id] = data.context;
      else if (data.id !== undefined) delete next.entries[data.id];
      if (id !== undefined) [next.cursor, copy] = [id, next];
    }
  } catch (error) {
    // fetch reports a lost connection as a TypeError.
    if (!(error instanceof TypeError) && !stop.signal.aborted) throw error;
  } finally {
    clearTimeout(silence);
  }
  return undefined;
}

void save();
for (;; await sleep(1000)) {
  const reason = await follow();
  if (reason === "RESYNC_REQUIRED" || reason === "CURSOR_COMPACTED") copy = { entries: {} };
}
