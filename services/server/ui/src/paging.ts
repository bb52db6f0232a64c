// Pages of a thread in both directions, from any place in it.
//
// The service lists entries newest first, up to a date. So earlier entries are the next page; for later ones a span of
// time is looked for that has some, but not more than a page.

import { api, type Hit } from "./api";

export const PAGE = 50;
const MOST = 100;
const FIRST_SPAN_MS = 60_000;

/** Oldest first. */
export interface Page {
  entries: Hit[];
  /** Whether there are more in this direction. */
  more: boolean;
}

/** The order in a thread. Not by id alone: services on one database give out ids in blocks. */
export function oldestFirst(a: Hit, b: Hit): number {
  return Date.parse(a.created_at) - Date.parse(b.created_at) || a.id - b.id;
}

/** The entries up to a time, without those that are known. */
export async function before(thread: string, until: string | undefined, known: Hit[], signal?: AbortSignal): Promise<Page> {
  // Entries of the same moment may be on both sides of the page's end.
  const offset = until === undefined ? 0 : known.filter(({ created_at }) => created_at === until).length;
  const body = { thread_id: thread, limit: PAGE, offset, ...(until === undefined ? {} : { end_date: until }) };
  const { results } = await api.search("filters", body, signal);
  const first = known[0];
  return { entries: results.toReversed().filter((entry) => first === undefined || oldestFirst(entry, first) < 0), more: results.length === PAGE };
}

/** The entries from a time on, without those that are known. */
export async function after(thread: string, from: string, known: Hit[], signal?: AbortSignal): Promise<Page> {
  const start = Date.parse(from);
  const first = known[0];
  const last = known.at(-1);
  // Entries of the same moment may be on both sides of the page's end.
  const unknown = (entries: Hit[]) => entries.toReversed().filter((entry) => last === undefined || oldestFirst(last, entry) < 0);
  // About half a page, if the entries come as often as those that are known.
  let span = first && known.length > 1 ? Math.ceil(((start - Date.parse(first.created_at)) / known.length) * PAGE * 0.7) + 1 : FIRST_SPAN_MS;
  // In milliseconds: a span without entries, and one with too many.
  let none = 0;
  let many = Infinity;
  for (;;) {
    const isLast = start + span >= Date.now() + FIRST_SPAN_MS;
    const body = { thread_id: thread, start_date: from, ...(isLast ? {} : { end_date: new Date(start + span).toISOString() }) };
    const { results } = await api.search("filters", { ...body, limit: MOST }, signal);
    const found = unknown(results);
    // Newest first: where a known one follows, nothing is missing between.
    if (results.length < MOST || found.length < results.length) {
      if (found.length > 0 || isLast) return { entries: found, more: !isLast };
      none = span;
    } else {
      // Entries of one moment do not get fewer by halves.
      const oldest = Math.ceil(Date.parse(results.at(-1)?.created_at ?? from) - start) + 1;
      many = Math.max(Math.min(span, oldest), none + 1);
    }
    if (many - none <= 1) return { entries: unknown(await all({ ...body, end_date: new Date(start + many).toISOString() }, signal)), more: true };
    span = many === Infinity ? span * 8 : Math.ceil((none + many) / 2);
  }
}

/** The first entry of a thread. */
export async function beginning(thread: string): Promise<Hit | undefined> {
  const limit = 500;
  for (let offset = 0; ; offset += limit) {
    const { threads, has_more } = await api.threads(limit, offset);
    const found = threads.find(({ thread_id }) => thread_id === thread);
    if (found) {
      const moment = { thread_id: thread, end_date: found.first_entry };
      return (await all(moment)).at(-1);
    }
    if (!has_more) return undefined;
  }
}

/** All entries of a span of one millisecond: what was stored in one batch has one time. */
async function all(body: Record<string, unknown>, signal?: AbortSignal): Promise<Hit[]> {
  const entries: Hit[] = [];
  for (;;) {
    const { results } = await api.search("filters", { ...body, limit: MOST, offset: entries.length }, signal);
    entries.push(...results);
    if (results.length < MOST) return entries;
  }
}
