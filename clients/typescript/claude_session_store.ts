// Keeps the transcripts of the Claude Agent SDK in the context service, so that any machine can resume a session. It
// reads what clients/python/claude_session_store.py writes, and the other way round.
//
//   const options = { sessionStore: new ContextSessionStore(connect("http://127.0.0.1:7420")) };
//
// A transcript is a thread. The thread `<prefix>/<project>` has one entry for each transcript of the project, which
// lists it and holds its summary.

import { createHash, randomUUID } from "node:crypto";

import { foldSessionSummary, type SessionKey, type SessionStore, type SessionStoreEntry, type SessionSummaryEntry } from "@anthropic-ai/claude-agent-sdk";

import { done, once, Refused, type Service } from "./service.js";
import { field, PAGE, pages, Transcript, type Hit } from "./transcript.js";

type Names = { session_id?: string; subpath?: string };

/** A `SessionStore` with all optional methods. */
export class ContextSessionStore implements SessionStore {
  private readonly appending = new Map<string, Promise<void>>();

  constructor(private readonly service: Service, private readonly prefix = "claude-sessions") {}

  async append(key: SessionKey, entries: SessionStoreEntry[]): Promise<void> {
    if (entries.length === 0) return;
    // In this object, appends to a transcript run one after the other, so an entry that is sent twice is stored once.
    const thread = this.thread(key);
    const appended = (this.appending.get(thread) ?? Promise.resolve()).catch(() => {}).then(() => this.appendNow(key, entries));
    this.appending.set(thread, appended);
    try {
      await appended;
    } finally {
      if (this.appending.get(thread) === appended) this.appending.delete(thread);
    }
  }

  async load(key: SessionKey): Promise<SessionStoreEntry[] | null> {
    const entries = await this.transcript(key).newest();
    return entries.length === 0 ? null : entries;
  }

  async listSessions(projectKey: string): Promise<{ sessionId: string; mtime: number }[]> {
    const listed = await this.listed(projectKey, { subpath: "" });
    return listed.map((hit) => ({ sessionId: field(hit, "session_id"), mtime: Date.parse(hit.updated_at) }));
  }

  async listSessionSummaries(projectKey: string): Promise<SessionSummaryEntry[]> {
    const listed = await this.listed(projectKey, { subpath: "" });
    return listed.flatMap((hit) => summary(hit) ?? []);
  }

  async listSubkeys({ projectKey, sessionId }: { projectKey: string; sessionId: string }): Promise<string[]> {
    const listed = await this.listed(projectKey, { session_id: sessionId });
    return listed.map((hit) => field(hit, "subpath")).filter((subpath) => subpath !== "");
  }

  async delete({ projectKey, sessionId, subpath }: SessionKey): Promise<void> {
    const metadata: Names = { session_id: sessionId, ...(subpath ? { subpath } : {}) };
    const listed: Hit[] = [];
    for await (const hit of pages(this.service, { thread_id: this.index(projectKey), metadata })) listed.push(hit);
    for (let start = 0; start < listed.length; start += PAGE) {
      const page = listed.slice(start, start + PAGE);
      const thread_ids = page.map((hit) => this.thread({ projectKey, sessionId, subpath: field(hit, "subpath") }));
      done(await this.service.POST("/v1/contexts/batch-delete", { body: { thread_ids }, params: once() }));
      const context_ids = page.map((hit) => hit.id);
      done(await this.service.POST("/v1/contexts/delete", { body: { context_ids }, params: once() }));
    }
  }

  private async appendNow(key: SessionKey, entries: SessionStoreEntry[]): Promise<void> {
    // The transcript is listed first. Otherwise a failure could leave entries that `delete` does not find.
    await this.entry(key);
    const transcript = this.transcript(key);
    const known = await transcript.known(entries.flatMap((entry) => entry.uuid || []));
    const added = new Map<string, SessionStoreEntry>();
    for (const entry of entries) {
      const id = entry.uuid || randomUUID();
      if (!known.has(id) && !added.has(id)) added.set(id, entry);
    }
    await transcript.append(added);
    await this.fold(key, entries);
  }

  /** Updates the entry that lists the transcript: its time, and its summary with `entries` folded in. */
  private async fold(key: SessionKey, entries: SessionStoreEntry[]): Promise<void> {
    for (;;) {
      const hit = await this.entry(key);
      const metadata = { ...hit.metadata };
      if (!key.subpath) metadata["summary"] = JSON.stringify(foldSessionSummary(summary(hit), key, entries).data);
      try {
        const params = { ...once(), path: { context_id: hit.id } };
        done(await this.service.PATCH("/v1/contexts/{context_id}", { params, body: { metadata, expected_version: hit.version } }));
        return;
      } catch (error) {
        // Another process has updated the summary or deleted the session: read the entry again.
        if (!(error instanceof Refused) || !["VERSION_MISMATCH", "CONTEXT_NOT_FOUND"].includes(error.reason)) throw error;
      }
    }
  }

  /** Returns the entry that lists the transcript, and stores it first if there is none. */
  private async entry({ projectKey, sessionId, subpath = "" }: SessionKey): Promise<Hit> {
    for (;;) {
      const [first] = await this.listed(projectKey, { session_id: sessionId, subpath });
      if (first !== undefined) return first;
      const metadata = { session_id: sessionId, subpath, framework: "claude-agent-sdk", project_key: projectKey, summary: "" };
      const text = `Transcript of Claude Code: ${[sessionId, subpath].filter((name) => name !== "").join("/")}`;
      const body = { thread_id: this.index(projectKey), source: "agent" as const, text, metadata };
      done(await this.service.POST("/v1/contexts", { body, params: once() }));
    }
  }

  /** The entries that list transcripts with these names. If two processes list the same one, the first counts. */
  private async listed(projectKey: string, metadata: Names): Promise<Hit[]> {
    const found = new Map<string, Hit>();
    const newestFirst = pages(this.service, { thread_id: this.index(projectKey), metadata });
    for await (const hit of newestFirst) found.set(JSON.stringify([field(hit, "session_id"), field(hit, "subpath")]), hit);
    return [...found.values()];
  }

  private transcript(key: SessionKey): Transcript<SessionStoreEntry> {
    const names = { project_key: key.projectKey, session_id: key.sessionId, ...(key.subpath ? { subpath: key.subpath } : {}) };
    return new Transcript(this.service, this.thread(key), { framework: "claude-agent-sdk", ...names });
  }

  private index(projectKey: string): string {
    return threadId(this.prefix, projectKey);
  }

  private thread({ projectKey, sessionId, subpath }: SessionKey): string {
    return threadId(this.prefix, projectKey, sessionId, ...(subpath ? [subpath] : []));
  }
}

/** The thread of these names: unique to them, and at most 256 characters long. */
function threadId(prefix: string, ...names: string[]): string {
  const encoded = names.map((name) => encodeURIComponent(name).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`));
  const thread = [prefix, ...encoded].join("/");
  return thread.length <= 256 ? thread : `${prefix}/${createHash("sha256").update(thread).digest("hex")}`;
}

function summary(hit: Hit): SessionSummaryEntry | undefined {
  const data = field(hit, "summary");
  return data === "" ? undefined : { sessionId: field(hit, "session_id"), mtime: Date.parse(hit.updated_at), data: JSON.parse(data) };
}
