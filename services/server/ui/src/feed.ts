// The changes in the service, as they are committed: the stream of /v1/watch (docs/sync.md).
//
// When the connection breaks, the next stream continues from the last cursor, so no change is lost or arrives twice.
// When the cursor is no longer valid, or is far behind, the next stream starts with new changes, and the views load
// their lists again.

import { api, ApiError, type Hit, type ServiceChange, signOut, type StreamEvent, UNREACHABLE } from "./api";
import { asApiError } from "./hooks";

/** One change of an entry or an artifact. */
export interface Change {
  operation: "created" | "updated" | "deleted" | "restored";
  entity: "context" | "artifact";
  id: string;
  /** Grows with each change of the owner. */
  revision: number;
  time: string;
  thread: string | undefined;
  version: number | undefined;
  /** The entry as it is now. Absent when it is deleted, and for an artifact. */
  entry: Hit | undefined;
  /** The title of an artifact, unless it is deleted. */
  title: string | undefined;
}

export interface Listener {
  /** Called at the start and after a gap: lists that were loaded before may lack some changes. */
  start(): void;
  changes(changes: Change[]): void;
  /** Called with the owner's new revision: the shown data may be out of date. */
  revision(revision: number): void;
  /** Called with the reason why no changes arrive at the moment; null when they do. */
  trouble(error: ApiError | null): void;
}

export interface Feed {
  close(): void;
}

/** How many characters of a text a list stores, so that long texts do not fill the memory of the tab. */
const MAX_CHARACTERS = 1_000;
/** Changes that arrive within this time are shown together. */
const BATCH_MS = 60;
/** When this many changes wait, they are shown at once, so that their number stays bounded. */
const MAX_PENDING = 500;
/** When more changes than this are missing, it is less work to load the lists again. */
const FAR_BEHIND = 1_000;
/** The service sends a frame at least every 15 s. */
const SILENCE_MS = 35_000;
const OPENING_MS = 10_000;
const RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;

const BUFFERED = new ApiError(0, "BUFFERED", "No changes arrive. Does a proxy buffer text/event-stream?");
const SILENT = new ApiError(0, UNREACHABLE, "The service does not respond.");
const STOPPING = new ApiError(0, "STOPPING", "The service is stopping.");

export function follow(listener: Listener): Feed {
  const closed = new AbortController();
  let cursor: string | undefined;
  let revision = -1;
  let failures = 0;
  let pending: Change[] = [];
  let flushing: ReturnType<typeof setTimeout> | undefined;
  // Ends the current stream or pause.
  let interrupt = new AbortController();
  let interrupted: AbortController | undefined;

  function flush(): void {
    clearTimeout(flushing);
    flushing = undefined;
    if (pending.length === 0 || closed.signal.aborted) return;
    const changes = pending;
    pending = [];
    listener.changes(changes);
    listener.revision(revision);
  }

  function reached(next: number): void {
    if (next === revision) return;
    revision = next;
    if (pending.length === 0) listener.revision(revision);
  }

  /** Processes the frames of one stream until it ends. */
  async function stream(attempt: AbortController): Promise<void> {
    const { signal } = attempt;
    const began = Date.now();
    let opened = false;
    let silent = false;
    let quiet: ReturnType<typeof setTimeout> | undefined;
    const within = (ms: number) => {
      clearTimeout(quiet);
      quiet = setTimeout(() => {
        silent = true;
        attempt.abort();
      }, ms);
    };
    // What it means if nothing arrives in time.
    let problem = SILENT;
    within(OPENING_MS);
    try {
      if (cursor !== undefined) await checkCursor(cursor, signal);
      problem = BUFFERED;
      within(OPENING_MS);
      for await (const event of api.watch(cursor ?? "now", signal)) {
        within(SILENCE_MS);
        handle(event);
        if (!opened) {
          opened = true;
          listener.trouble(null);
        }
        if (Date.now() - began > MAX_RETRY_MS) failures = 0;
      }
    } catch (error) {
      if (!silent) throw error;
      if (!opened) throw problem;
    } finally {
      clearTimeout(quiet);
      flush();
    }
  }

  function handle({ name, id, data }: StreamEvent): void {
    const frame = data as { revision?: number; reason?: string };
    if (name === "opened") {
      if (cursor === undefined) listener.start();
      reached(frame.revision ?? 0);
    } else if (name === "change") {
      const change = changeOf(data as ServiceChange);
      pending.push(change);
      reached(change.revision);
      if (pending.length >= MAX_PENDING) flush();
      else flushing ??= setTimeout(flush, BATCH_MS);
    } else if (name === "bookmark") {
      reached(frame.revision ?? revision);
    } else if (name === "resync") {
      if (frame.reason !== "SLOW_CONSUMER") cursor = undefined;
    } else if (name === "end") {
      if (frame.reason === "KEY_REVOKED") signOut();
      if (frame.reason === "OWNER_ERASED") cursor = undefined;
      if (frame.reason === "DRAINING") throw STOPPING;
    }
    cursor = id ?? cursor;
  }

  /** Drops the cursor if it is no longer valid, or far behind. */
  async function checkCursor(from: string, signal: AbortSignal): Promise<void> {
    try {
      const now = await api.changesAfter(from, signal);
      if (now.revision - revision > FAR_BEHIND) cursor = undefined;
    } catch (error) {
      if (!["CURSOR_INVALID", "CURSOR_COMPACTED", "RESYNC_REQUIRED"].includes(asApiError(error).reason)) throw error;
      cursor = undefined;
    }
  }

  async function run(): Promise<void> {
    while (!closed.signal.aborted) {
      const attempt = new AbortController();
      interrupt = attempt;
      // A hidden tab has no stream, because a browser opens only six connections to a service. When the tab is shown,
      // the stream continues.
      if (document.hidden) {
        await pause(Infinity, attempt.signal);
        continue;
      }
      try {
        await stream(attempt);
      } catch (error) {
        // A broken connection is not reported yet. If the next attempt fails too, its error is.
        if (error instanceof ApiError) listener.trouble(error);
      }
      if (interrupted === attempt) continue;
      const rest = new AbortController();
      interrupt = rest;
      await pause(Math.min(RETRY_MS * 1.5 ** failures, MAX_RETRY_MS), rest.signal);
      failures += 1;
    }
  }

  // A tab that is shown or online again connects at once. A hidden tab ends its stream.
  const changed = () => {
    interrupted = interrupt;
    interrupt.abort();
  };
  document.addEventListener("visibilitychange", changed);
  addEventListener("online", changed);
  void run();
  return {
    close() {
      closed.abort();
      changed();
      clearTimeout(flushing);
      document.removeEventListener("visibilitychange", changed);
      removeEventListener("online", changed);
    },
  };
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = ms === Infinity ? undefined : setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function changeOf({ operation, entity, id, revision, time, thread_id, version, context, artifact }: ServiceChange): Change {
  return {
    operation: operation as Change["operation"],
    entity: entity as Change["entity"],
    id,
    revision,
    time,
    thread: thread_id ?? undefined,
    version: version ?? undefined,
    entry: context ? shortened({ ...context, is_text_content_truncated: false }) : undefined,
    title: artifact?.title,
  };
}

/** The entry with only the beginning of its text. */
function shortened(entry: Hit): Hit {
  const { text_content: text } = entry;
  if (text.length <= MAX_CHARACTERS) return entry;
  // A copy, because a slice of a text holds the whole text in memory.
  return { ...entry, text_content: structuredClone(text.slice(0, MAX_CHARACTERS)), is_text_content_truncated: true };
}
