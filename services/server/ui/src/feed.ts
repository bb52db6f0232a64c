// What happens in the service, as it happens.
//
// Views know only `Feed`. This one asks every two seconds; one that reads /v1/watch replaces `follow` and nothing else.

import { api, ApiError, type Hit } from "./api";

/** One change of an entry. */
export interface Change {
  operation: "created" | "updated" | "deleted";
  /** The entry after the change; before it, if it was deleted. */
  entry: Hit;
}

export interface Listener {
  /** The newest entries at the start, and again after a gap that changes cannot bridge. */
  snapshot(entries: Hit[]): void;
  changes(changes: Change[]): void;
  /** The owner's revision grew: whatever is shown may be out of date. */
  revision(revision: number): void;
  /** Why nothing comes at the moment; null when all is well. */
  trouble(error: ApiError | null): void;
}

export interface Feed {
  close(): void;
}

export const NEWEST = 50;
const EVERY_MS = 2_000;
const MOST_MS = 15_000;

/** Follows the entries; with `entries` false only the revision, for a key that may not read entries. */
export function follow(listener: Listener, entries: boolean): Feed {
  let known: Hit[] | undefined;
  let revision = -1;
  let failures = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const closed = new AbortController();

  async function look(): Promise<void> {
    const now = entries ? await api.threads(1, 0, closed.signal) : await api.artifacts(1, undefined, closed.signal);
    if (now.revision === revision) return;
    if (entries) {
      const reply = await api.search("filters", { limit: NEWEST }, closed.signal);
      if (known === undefined || now.revision < revision) listener.snapshot(reply.results);
      else {
        const changes = compare(known, reply.results);
        if (changes === undefined) listener.snapshot(reply.results);
        else if (changes.length > 0) listener.changes(changes);
      }
      known = reply.results;
    }
    revision = now.revision;
    listener.revision(revision);
  }

  async function turn(): Promise<void> {
    // A tab that nobody sees asks nothing. It catches up when it is shown.
    if (!document.hidden) {
      try {
        await look();
        failures = 0;
        listener.trouble(null);
      } catch (error) {
        if (closed.signal.aborted) return;
        failures += 1;
        listener.trouble(error instanceof ApiError ? error : new ApiError(0, "PAGE", String(error)));
      }
    }
    if (!closed.signal.aborted) timer = setTimeout(turn, Math.min(EVERY_MS * 1.5 ** failures, MOST_MS));
  }

  const shown = () => {
    if (document.hidden || timer === undefined) return;
    clearTimeout(timer);
    timer = undefined;
    void turn();
  };
  document.addEventListener("visibilitychange", shown);
  void turn();
  return {
    close() {
      closed.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    },
  };
}

/** The order of lists. Not by id alone: services on one database give out ids in blocks. */
export function newestFirst(a: Hit, b: Hit): number {
  return Date.parse(b.created_at) - Date.parse(a.created_at) || b.id - a.id;
}

/** The changes between two lists of the newest entries; undefined when they have nothing in common. */
export function compare(before: Hit[], after: Hit[]): Change[] | undefined {
  const newest = before[0];
  const oldest = after.length < NEWEST ? undefined : after.at(-1);
  const old = new Map(before.map((entry) => [entry.id, entry]));
  if (before.length > 0 && after.length >= NEWEST && !after.some((entry) => old.has(entry.id))) return undefined;
  const changes: Change[] = [];
  for (const entry of after) {
    const earlier = old.get(entry.id);
    if (earlier === undefined) {
      // An entry that moved up because a newer one was deleted is not new.
      if (newest === undefined || newestFirst(entry, newest) < 0) changes.push({ operation: "created", entry });
    } else if (earlier.version !== entry.version) changes.push({ operation: "updated", entry });
  }
  const left = new Set(after.map((entry) => entry.id));
  for (const entry of before) {
    if (!left.has(entry.id) && (oldest === undefined || newestFirst(entry, oldest) < 0)) changes.push({ operation: "deleted", entry });
  }
  return changes;
}
