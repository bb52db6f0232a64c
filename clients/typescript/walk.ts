// Stores, finds, changes, follows and deletes an entry over REST. The types come from the
// service's OpenAPI document, so a wrong field does not compile.
//
//   npm install && npm run generate && npm start [URL]

import assert from "node:assert/strict";

import createClient from "openapi-fetch";

import { events } from "./events.js";
import type { components, paths } from "./openapi.d.ts";

const baseUrl = process.argv[2] ?? "http://127.0.0.1:7420";
const client = createClient<paths>({ baseUrl });
const thread = `typescript-${process.pid}`;

// Store.
const stored = await client.POST("/v1/contexts", {
  body: {
    thread_id: thread,
    source: "agent",
    text: "Retries use full jitter since the March outage.",
    tags: ["Retries"],
    metadata: { status: "active", attempts: 5 },
  },
});
assert.equal(stored.response.status, 201);
assert(stored.data, "a stored entry comes with a body");
const id: number = stored.data.context_id;
assert.equal(stored.response.headers.get("location"), `/v1/contexts/${id}`);

// Get it back, in full.
const fetched = await client.GET("/v1/contexts/{context_id}", { params: { path: { context_id: id } } });
assert(fetched.data);
const entry: components["schemas"]["Entry"] = fetched.data;
assert.equal(entry.text_content, "Retries use full jitter since the March outage.");
assert.deepEqual(entry.tags, ["retries"]);
assert.deepEqual(entry.metadata, { status: "active", attempts: 5 });
const etag = fetched.response.headers.get("etag");
assert.equal(etag, `"${entry.version}"`);

// Search by metadata and full text.
const filtered = await client.POST("/v1/contexts/search", {
  body: { thread_id: thread, metadata_filters: [{ key: "attempts", operator: "gte", value: 5 }] },
});
assert.deepEqual(
  filtered.data?.results.map((hit) => hit.id),
  [id],
);
const ranked = await client.POST("/v1/contexts/search/fts", { body: { query: "retry outages", thread_id: thread } });
assert.deepEqual(
  ranked.data?.results.map((hit) => hit.id),
  [id],
);

// Change it with the version that was read. The second change is refused.
const path = { context_id: id };
const change = (text: string) =>
  client.PATCH("/v1/contexts/{context_id}", {
    params: { path, header: { "If-Match": etag } },
    body: { text },
  });
const changed = await change("Retries use full jitter and a budget.");
assert.deepEqual(changed.data?.updated_fields, ["text_content"]);
const late = await change("Retries are off.");
assert.equal(late.response.status, 412);
assert.equal(late.error?.reason, "VERSION_MISMATCH");

// The error names every invalid field.
const refused = await client.POST("/v1/contexts/search", { body: { limit: 500 } });
assert.equal(refused.response.status, 400);
assert.equal(refused.error?.reason, "INVALID_ARGUMENT");
assert.deepEqual(
  refused.error?.violations?.map((violation) => violation.field),
  ["limit"],
);

// Changes: a list waits for the next one.
const query = { thread_id: thread, preview_chars: 100 };
const now = await client.GET("/v1/changes", { params: { query: { cursor: "now" } } });
assert.deepEqual(now.data?.changes, []);
const waiting = client.GET("/v1/changes", {
  params: { query: { ...query, cursor: now.data.next_cursor, wait_ms: 25_000 } },
});
const budget = await client.PATCH("/v1/contexts/{context_id}", {
  params: { path },
  body: { text: "Retries have a budget." },
});
const page = await waiting;
assert.deepEqual(
  page.data?.changes.map(({ revision, operation, id, preview }) => [revision, operation, id, preview]),
  [[budget.data?.revision, "updated", `${id}`, "Retries have a budget."]],
);
const garbled = await client.GET("/v1/changes", { params: { query: { cursor: "garbled" } } });
assert.equal(garbled.error?.reason, "CURSOR_INVALID");

// A stream of Server-Sent Events: the existing entries first, then each committed change.
const stop = new AbortController();
const stream = await client.GET("/v1/watch", {
  params: { query: { ...query, snapshot: true } },
  parseAs: "stream",
  signal: stop.signal,
});
assert.equal(stream.response.headers.get("content-type"), "text/event-stream");
assert(stream.data);
const frames = events(stream.data);
assert.equal((await frames.next()).value?.event, "opened");
const present = (await frames.next()).value;
assert.deepEqual([present?.event, present?.id, present?.data.preview], ["entry", undefined, "Retries have a budget."]);
const end = (await frames.next()).value;
assert.equal(end?.event, "snapshot_end");
assert(end?.id, "the end of a snapshot has a cursor");

// Delete it.
const deleted = await client.DELETE("/v1/contexts/{context_id}", { params: { path } });
assert.equal(deleted.data?.deleted_count, 1);
const gone = await client.GET("/v1/contexts/{context_id}", { params: { path } });
assert.equal(gone.response.status, 404);
assert.equal(gone.error?.reason, "CONTEXT_NOT_FOUND");

// The stream reports the deletion.
const last = (await frames.next()).value;
assert.deepEqual(
  [last?.event, last?.data.operation, last?.data.id, last?.data.revision],
  ["change", "deleted", `${id}`, deleted.data?.revision],
);
stop.abort();

console.log("typescript: stored, found, changed, followed and deleted an entry");
