// Loads pages of a thread in both directions, from any entry of it.
//
// The service lists entries newest first, up to a date, so earlier entries are simply the next page. For later entries,
// `after` searches for a span of time that contains some entries, but not more than a request can return.

import { api, type Hit } from "./api";

export const PAGE = 50;
const LIMIT = 100;
const FIRST_SPAN_MS = 60_000;

/** Oldest first. */
export interface Page {
  entries: Hit[];
  /** Whether there are more in this direction. */
  more: boolean;
}

/**
 * The order in a thread. Not by id alone: services on one database give out ids in blocks. Times are compared as texts,
 * which all have the same form, because a Date has no microseconds.
 */
export function oldestFirst(a: Hit, b: Hit): number {
  if (a.created_at === b.created_at) return a.id - b.id;
  return a.created_at < b.created_at ? -1 : 1;
}

/** The entries up to a time, without those in `loaded`. */
export async function before(thread: string, until: string | undefined, loaded: Hit[], signal?: AbortSignal): Promise<Page> {
  // Entries of the same moment may be on both sides of the page's end.
  const offset = until === undefined ? 0 : loaded.filter(({ created_at }) => created_at === until).length;
  const body = { thread_id: thread, limit: PAGE, offset, ...(until === undefined ? {} : { end_date: until }) };
  const { results } = await api.search("filters", body, signal);
  const first = loaded[0];
  return { entries: results.toReversed().filter((entry) => first === undefined || oldestFirst(entry, first) < 0), more: results.length === PAGE };
}

/** The entries from a time on, without those in `loaded`. */
export async function after(thread: string, from: string, loaded: Hit[], signal?: AbortSignal): Promise<Page> {
  const start = Date.parse(from);
  const first = loaded[0];
  const last = loaded.at(-1);
  // Entries of the same moment may be on both sides of the page's end.
  const withoutLoaded = (entries: Hit[]) => entries.toReversed().filter((entry) => last === undefined || oldestFirst(last, entry) < 0);
  // At the rate of the loaded entries, this span contains 0.7 pages.
  let span = first && loaded.length > 1 ? Math.ceil(((start - Date.parse(first.created_at)) / loaded.length) * PAGE * 0.7) + 1 : FIRST_SPAN_MS;
  // Bounds in milliseconds: `none` is a span without entries, `many` one with too many.
  let none = 0;
  let many = Infinity;
  for (;;) {
    const isLast = many === Infinity && start + span >= Date.now() + FIRST_SPAN_MS;
    const body = { thread_id: thread, start_date: from, ...(isLast ? {} : { end_date: new Date(start + span).toISOString() }) };
    const { results } = await api.search("filters", { ...body, limit: LIMIT }, signal);
    const found = withoutLoaded(results);
    // Results are newest first: if they reach back to a loaded entry, none is missing in between.
    if (results.length < LIMIT || found.length < results.length) {
      if (found.length > 0 || isLast) return { entries: found, more: !isLast };
      none = span;
    } else {
      // The next span ends at the oldest result at the latest. Halving alone cannot separate entries of the same time.
      const oldest = Math.ceil(Date.parse(results.at(-1)?.created_at ?? from) - start) + 1;
      // The last span has no end, so a clock of this machine that is behind the service's does not matter.
      many = Math.max(isLast ? oldest : Math.min(span, oldest), none + 1);
    }
    if (many - none <= 1) return { entries: withoutLoaded(await all({ ...body, end_date: new Date(start + many).toISOString() }, signal)), more: true };
    span = many === Infinity ? span * 8 : Math.ceil((none + many) / 2);
  }
}

/** The first entry of a thread. */
export async function beginning(thread: string): Promise<Hit | undefined> {
  const found = await api.thread(thread);
  return found && (await all({ thread_id: thread, end_date: found.first_entry })).at(-1);
}

/** All entries of a span of one millisecond. The entries of a batch have the same time. */
async function all(body: Record<string, unknown>, signal?: AbortSignal): Promise<Hit[]> {
  const entries: Hit[] = [];
  for (;;) {
    const { results } = await api.search("filters", { ...body, limit: LIMIT, offset: entries.length }, signal);
    entries.push(...results);
    if (results.length < LIMIT) return entries;
  }
}
