// The data that the walk finds in the service: a week of a small team and its agents.

import { deflateSync } from "node:zlib";

import { Rest } from "./rest.mjs";

const THREADS = {
  "billing-service": [
    ["user", "Which database should the billing service use? We expect 40 invoices a second at the end of the month.", ["question"], {}],
    ["agent", "We chose PostgreSQL for the billing service. Reasons: transactions across invoices and ledger entries, row locks for the numbering, and the team already runs it.\n\nSQLite would be enough for the load, but two regions write.", ["decision", "database"], { status: "decided", priority: 5, owner: "mara" }],
    ["agent", "Invoice numbers must have no gaps (German law). The number is taken in the same transaction as the invoice, with a lock on the row of the year.", ["constraint"], { status: "decided", source_document: "§ 14 UStG" }],
    ["user", "Please remember: the staging database is reset every Sunday at 03:00 UTC.", ["ops", "staging"], { priority: 2 }],
    ["agent", "Migration 0042 adds `ledger.entry_hash`. It takes about four minutes on a copy of production and blocks no reads.", ["migration"], { ticket: "BILL-318", minutes: 4, checked: true, host: { name: "pg-billing-2", region: "eu-west" } }],
  ],
  "incident/2026-11-14": [
    ["agent", "14:02 UTC: error rate of checkout rose to 12 %. The first failing request is a timeout of the tax service.", ["incident"], { severity: 2 }],
    ["agent", "14:09 UTC: the tax service's connection pool is exhausted: 20 of 20 connections wait for one slow query.\n\n  SELECT … FROM rates WHERE valid_from <= $1 ORDER BY valid_from\n\nThe index on (country, valid_from) was dropped by migration 0040.", ["incident", "root-cause"], { severity: 2, migration: "0040" }],
    ["user", "Roll back 0040 and raise the pool to 40 until the index is back.", [], {}],
    ["agent", "14:21 UTC: index created concurrently, error rate 0.1 %. Follow-up: a test that EXPLAINs the rate lookup.", ["incident", "follow-up"], { severity: 2, minutes_to_resolve: 19 }],
  ],
  "onboarding": [
    ["user", "New colleagues get the laptop, the VPN and the repository on day one; production access after the second week.", ["people"], {}],
    ["agent", "Checklist for Tomás: VPN is set up, repository is cloned, the tests pass on his machine. Open: signing key.", ["people", "checklist"], { done: 3, open: 1 }],
  ],
  "research/vector-index": [
    ["agent", "Scanning one bit per dimension and rescoring the best few hundred with the full vectors gives a recall of 1.000 at a million vectors, in 1.9 ms. HNSW loses to this as soon as a filter is selective.", ["finding", "performance"], { vectors: 1000000, ms: 1.9 }],
    ["agent", "Normalised vectors: the L2 distance d gives the cosine as 1 − d²/2.", ["finding"], {}],
  ],
  "ユーザー調査": [["user", "検索は速いが、なぜその結果が出たのか分からないという声が多い。理由を表示してほしい。", ["feedback"], { interviews: 7 }]],
};

const PLAN = [
  "# Deployment plan\n\n1. Freeze the main branch.\n2. Run the migration on a copy.\n3. Deploy to staging.\n4. Deploy to production.\n",
  "# Deployment plan\n\n1. Freeze the main branch.\n2. Run the migration on a copy of production.\n3. Deploy to staging and wait for one hour.\n4. Deploy to production.\n",
  "# Deployment plan\n\n1. Freeze the main branch.\n2. Run the migration on a copy of production.\n3. Deploy to staging and wait for one hour.\n4. Deploy to one region.\n5. Compare error rates for 30 minutes.\n6. Deploy to the other region.\n",
  "# Deployment plan\n\n1. Freeze the main branch and tell support.\n2. Run the migration on a copy of production.\n3. Deploy to staging and wait for one hour.\n4. Deploy to one region.\n5. Compare error rates for 30 minutes.\n6. Deploy to the other region.\n\nTo roll back, deploy the previous image; migrations are compatible with it.\n",
];

/** Stores the data, and returns the parts that the walk refers to. */
export async function seed(url, key) {
  const rest = new Rest(url, key);
  for (const [thread_id, entries] of Object.entries(THREADS)) {
    for (const [source, text, tags, metadata] of entries) await rest.post("v1/contexts", { thread_id, source, text, tags, metadata });
  }
  await rest.post("v1/contexts", {
    thread_id: "incident/2026-11-14",
    source: "user",
    text: "The dashboard at the worst moment.",
    tags: ["incident", "screenshot"],
    images: [{ data: picture(320, 140), mime_type: "image/png", metadata: { panel: "checkout errors" } }],
  });
  const long = Array.from({ length: 400 }, (_, i) => `Line ${i + 1}: the quick brown fox jumps over the lazy dog.`).join("\n");
  await rest.post("v1/contexts", { thread_id: "transcripts", source: "agent", text: long, tags: ["transcript"] });
  for (let i = 1; i <= 60; i += 1) {
    await rest.post("v1/contexts", { thread_id: "heartbeat", source: i % 7 === 0 ? "user" : "agent", text: `Check ${i}: all ${10 + (i % 5)} probes answer.`, metadata: { check: i } });
  }
  const wrong = await rest.post("v1/contexts", {
    thread_id: "billing-service",
    source: "agent",
    text: "The tax rate for books is 19 %.",
    tags: ["fact"],
    metadata: { confidence: 0.5, big: 1 },
  });
  const plan = await rest.post("v1/artifacts", { content: PLAN[0], metadata: { kind: "plan" } });
  for (const content of PLAN.slice(1)) await rest.call("PATCH", `v1/artifacts/${plan.id}`, { content });
  await rest.post("v1/artifacts", { title: "Prompt: reviewer", content: "You review changes. Name the riskiest line first.\nSay what you did not look at.", metadata: { kind: "prompt" } });
  await rest.post("v1/artifacts", { content: "## Release notes\n\n- Search explains its results.\n- Artifacts can be compared.", metadata: { kind: "notes", draft: true } });
  return { rest, wrong: wrong.context_id, plan: plan.id };
}

/** A PNG with bars, as base64. */
export function picture(width, height) {
  const rows = [];
  for (let y = 0; y < height; y += 1) {
    const row = Buffer.alloc(1 + width * 3);
    for (let x = 0; x < width; x += 1) {
      const bar = Math.floor(x / 20);
      const on = height - y < 20 + ((bar * 37) % 90) && x % 20 < 14;
      row.set(on ? (bar > 9 && bar < 13 ? [190, 50, 40] : [20, 120, 105]) : [238, 241, 245], 1 + x * 3);
    }
    rows.push(row);
  }
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
    const whole = Buffer.alloc(body.length + 8);
    whole.writeUInt32BE(data.length, 0);
    body.copy(whole, 4);
    whole.writeUInt32BE(crc(body), body.length + 4);
    return whole;
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const signature = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);
  return Buffer.concat([signature, chunk("IHDR", header), chunk("IDAT", deflateSync(Buffer.concat(rows))), chunk("IEND", Buffer.alloc(0))]).toString("base64");
}

function crc(data) {
  let value = ~0;
  for (const byte of data) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  }
  return ~value >>> 0;
}
