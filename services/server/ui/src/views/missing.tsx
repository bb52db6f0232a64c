// Explains why an entry is not among the results: searches again with filters that select little more than this entry.

import { useState } from "preact/hooks";

import { api, type ApiError, type Entry, type Hit } from "../api";
import { useApp } from "../context";
import { asApiError } from "../hooks";
import { compact } from "../json";
import { Button, inputValue, Trouble } from "../parts/basics";
import { filters, type Query } from "../query";
import { to } from "../route";

const CANDIDATES = 5;

type Finding = [good: boolean, sentence: string];

export function Missing({ query, hits }: { query: Query; hits: Hit[] }) {
  const { rights } = useApp();
  const [wanted, setWanted] = useState("");
  const [candidates, setCandidates] = useState<Hit[]>();
  const [findings, setFindings] = useState<{ id: number; list: Finding[] }>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  if (!rights.contexts.read) return null;

  const attempt = async (act: () => Promise<void>) => {
    setError(undefined);
    setFindings(undefined);
    setBusy(true);
    try {
      await act();
    } catch (failure) {
      setError(asApiError(failure));
    }
    setBusy(false);
  };
  const explainEntry = (id: number) =>
    attempt(async () => {
      const list = await explain(id, query, hits);
      setCandidates(undefined);
      setFindings({ id, list });
    });
  const number = /^\s*#?(\d+)\s*$/.exec(wanted)?.[1];
  // If words were given, the user chooses among the best entries for them.
  const choose = () => attempt(async () => setCandidates((await api.search("hybrid", { query: wanted, limit: CANDIDATES })).results));
  return (
    <details class="more missing">
      <summary>An entry is missing here?</summary>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          if (number !== undefined) void explainEntry(Number(number));
          else if (wanted.trim() !== "") void choose();
        }}
      >
        <label class="field inline long">
          <span class="name">Its number, or some of its words</span>
          <input value={wanted} maxLength={1000} onInput={(event) => setWanted(inputValue(event))} placeholder="42" />
        </label>
        <Button type="submit" disabled={busy || wanted.trim() === ""}>
          Find out why
        </Button>
      </form>
      {candidates && (
        <div role="status">
          <p>{candidates.length === 0 ? "No entry has these words." : "Which one is it?"}</p>
          <ul class="items">
            {candidates.map((hit) => (
              <li key={hit.id}>
                <button type="button" class="candidate" disabled={busy} onClick={() => void explainEntry(hit.id)}>
                  <span class="facts">
                    #{hit.id} · {hit.thread_id}
                  </span>
                  <span class="preview">{hit.text_content}</span>
                </button>
              </li>
            ))}
          </ul>
        </div>
      )}
      {error && <Trouble error={error} />}
      {findings && (
        <div role="status">
          <p>
            <a href={to("entry", findings.id)}>Entry {findings.id}</a>:
          </p>
          <ul class="findings">
            {findings.list.map(([good, sentence]) => (
              <li key={sentence} class={good ? "good" : "bad"}>
                {sentence}
              </li>
            ))}
          </ul>
        </div>
      )}
    </details>
  );
}

/** Searches again among the entries that have this entry's thread and creation time, which is usually this entry alone. */
async function explain(id: number, query: Query, hits: Hit[]): Promise<Finding[]> {
  const index = hits.findIndex((hit) => hit.id === id);
  if (index >= 0) return [[true, `It is result ${index + 1} on this page.`]];
  let entry: Entry;
  try {
    entry = await api.entry(id, false);
  } catch (error) {
    if (asApiError(error).reason === "CONTEXT_NOT_FOUND") return [[false, "It does not exist, or this key may not see it. It may have been deleted."]];
    throw error;
  }
  const narrow = { thread_id: entry.thread_id, start_date: entry.created_at, end_date: entry.created_at };
  const find = async (kind: Query["kind"], body: Record<string, unknown>): Promise<Hit | undefined> =>
    (await api.search(kind, { ...body, limit: 100 })).results.find((hit) => hit.id === id);

  const list: Finding[] = [];
  // Each filter is tried alone. Thread and dates are compared here, because the search needs them to find this entry.
  const given = filters(query);
  if (query.thread !== "" && query.thread !== entry.thread_id) list.push([false, `The filter on the thread excludes it: it is in “${entry.thread_id}”.`]);
  const { thread_id: _thread, start_date: from, end_date: until, ...others } = given;
  for (const [name, value] of Object.entries(others)) {
    const each = name === "metadata_filters" ? (value as unknown[]).map((one) => [one]) : [value];
    for (const one of each) {
      if ((await find("filters", { [name]: one, ...narrow })) === undefined) list.push([false, `The filter ${name} = ${compact(one)} excludes it.`]);
    }
  }
  if (from !== undefined || until !== undefined) {
    const at = Date.parse(entry.created_at);
    const early = typeof from === "string" && at < Date.parse(from);
    const late = typeof until === "string" && at >= Date.parse(until) + (until.length === 10 ? 86_400_000 : 1);
    if (early || late) list.push([false, `The dates exclude it: it was stored at ${entry.created_at}.`]);
  }
  if (list.length === 0 && Object.keys(given).length > 0) list.push([true, "It satisfies every filter."]);
  if (query.kind === "filters") {
    if (list.every(([good]) => good)) list.push([true, "It is further down: load more results."]);
    return list;
  }
  const mode = query.kind === "fts" ? query.mode : "match";
  if (query.kind !== "semantic") {
    // Hybrid search works without full-text search too.
    try {
      const hit = await find("fts", { query: query.text, mode, ...narrow });
      list.push(hit ? [true, "It has the words."] : [false, mode === "match" ? "It has none of the words." : `It does not match the words in the mode “${mode}”.`]);
      const text = entry.text_content.toLowerCase();
      const words = [...new Set(query.text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])];
      const absent = words.filter((word) => !text.includes(word));
      if (absent.length > 0 && absent.length < words.length) list.push([false, `Not in its text as typed: ${absent.join(", ")}.`]);
    } catch (error) {
      list.push([false, `It cannot be found by its words: ${asApiError(error).message}`]);
    }
  }
  if (query.kind !== "fts") {
    try {
      const hit = await find("semantic", { query: query.text, ...narrow });
      const scores = hit?.scores as { semantic_distance?: number } | undefined;
      list.push(
        hit
          ? [true, `Its meaning has the distance ${scores?.semantic_distance?.toFixed(2) ?? "?"}, the relevance ${hit.relevance?.toFixed(2) ?? "?"}.`]
          : [false, "It has no embedding yet, so it cannot be found by its meaning."],
      );
    } catch (error) {
      list.push([false, `It cannot be found by its meaning: ${asApiError(error).message}`]);
    }
  }
  const worst = hits.at(-1)?.relevance;
  if (list.every(([good]) => good)) {
    list.push([true, typeof worst === "number" ? `Other entries are ranked higher; the last one here has the relevance ${worst.toFixed(2)}.` : "Other entries are ranked higher: load more results."]);
  }
  return list;
}
