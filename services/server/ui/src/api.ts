// The calls of the page: the public REST API.

import type { components } from "./schema";
import { compact, parseReply } from "./json";

type Schemas = components["schemas"];
export type Hit = Schemas["SearchHit"];
export type Entry = Schemas["Entry"];
export type Thread = Schemas["Thread"];
export type Statistics = Schemas["Statistics"];
export type Artifact = Schemas["Artifact"];
export type ApiKey = Schemas["ApiKey"];
export type Image = Schemas["ImageInput"];
export type Operator = Schemas["Operator"];
export type FtsMode = Schemas["FtsMode"];
export type Filters = Schemas["SearchContextRequest"];
export type ServiceChange = Schemas["Change"];
export type SearchKind = "hybrid" | "fts" | "semantic" | "filters";

/** An artifact in a list, or found by a search. */
export type ArtifactItem = Schemas["ArtifactSummary"] | Schemas["ArtifactHit"];

/** A reply of any of the searches. */
export interface Found {
  results: Hit[];
  count: number;
  has_more: boolean;
  revision: number;
  warnings?: string[];
  stats?: Schemas["QueryStats"] | null;
  search_modes_used?: string[];
  model?: string;
  language?: string;
}

/** A Server-Sent Event: its name, its id and its data. */
export interface StreamEvent {
  name: string;
  id: string | undefined;
  data: unknown;
}

/** A call that failed: the message of the service, and its stable reason. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

export const UNREACHABLE = "UNREACHABLE";
export const PAGE_CLOSED = "PAGE_CLOSED";

// The key is stored only in this variable, so that it is gone with the tab. No cookie, storage or URL contains it.
let key: string | undefined;
let whenRefused: (reason: string) => void = () => {};

/** Sets the key, or a token in its place, that every further call sends. */
export function setKey(given: string | undefined): void {
  key = given;
}

/** The session of a page that `context-gateway open` opened. The page has a port of its own; clients use the socket. */
export interface Session {
  token: string;
  socket: string;
  /** The variables with which a gateway on this machine finds the service. */
  gateway_environment: Record<string, string>;
}

let opened: Session | undefined;
// Stored until the service responds, so that a failed request can be sent again.
let ticket: string | undefined;

/** The session of this page; undefined on a page that was opened in another way. */
export const session = (): Session | undefined => opened;

/** Exchanges the ticket in the page's URL, if there is one, for a session. */
export async function begin(): Promise<void> {
  const given = /^#open=([0-9a-f]+)$/.exec(location.hash)?.[1];
  if (given !== undefined) {
    ticket = given;
    // Removed before the request, so that neither a reload nor the history contains a used ticket.
    history.replaceState(null, "", location.pathname + location.search);
  }
  if (ticket === undefined) return;
  opened = await call<Session>("POST", "ui/session", { body: { ticket } });
  ticket = undefined;
}

/** The URL at which the issuer of tokens signs people in; null when only a key can be used. */
export const issuer = async (): Promise<string | null> => (await call<{ url: string | null }>("GET", "ui/sign-in")).url;

/** Exchanges an authorization code of the issuer for a token. */
export const exchange = async (code: string, verifier: string): Promise<string> =>
  (await call<{ token: string }>("POST", "ui/sign-in", { body: { code, verifier } })).token;

export function hasKey(): boolean {
  return key !== undefined;
}

/** Sets what to do when the service does not accept the key or the session any more. */
export function onRefused(action: (reason: string) => void): void {
  whenRefused = action;
}

/** An address of the service. The page may be served under a path, so it is relative to the page. */
export function address(path: string): URL {
  return new URL(path, document.baseURI.replace(/#.*/s, ""));
}

interface Options {
  query?: Record<string, string | number | boolean | undefined>;
  /** JSON text, or a value that becomes JSON. */
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

async function send(method: string, path: string, options: Options): Promise<Response> {
  const url = address(path);
  for (const [name, value] of Object.entries(options.query ?? {})) {
    if (value !== undefined) url.searchParams.set(name, String(value));
  }
  const headers = new Headers(options.headers);
  const credentials = key ?? opened?.token;
  if (credentials !== undefined) headers.set("authorization", `Bearer ${credentials}`);
  let body: string | undefined;
  if (options.body !== undefined) {
    headers.set("content-type", "application/json");
    body = typeof options.body === "string" ? options.body : compact(options.body);
  }
  const request: RequestInit = { method, headers, credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) request.body = body;
  if (options.signal) request.signal = options.signal;
  try {
    return await fetch(url, request);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, UNREACHABLE, "The service does not respond.");
  }
}

async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  return replyOf<T>(await send(method, path, options));
}

async function replyOf<T>(response: Response): Promise<T> {
  const text = await response.text();
  let reply: unknown;
  try {
    reply = parseReply(text);
  } catch {
    reply = undefined;
  }
  if (response.ok && reply !== undefined) return reply as T;
  const problem = (reply ?? {}) as Partial<Schemas["Problem"]>;
  const message = problem.detail ?? `The service responded with status ${response.status}.`;
  const error = new ApiError(response.status, String(problem.reason ?? response.status), message);
  if (response.status === 401) whenRefused(error.reason);
  throw error;
}

/** Signs out, as after a response with status 401. */
export function signOut(): void {
  whenRefused("UNAUTHENTICATED");
}

/** Yields the events of a stream as they arrive. It uses fetch, because EventSource cannot send a key. */
async function* events(path: string, options: Options): AsyncGenerator<StreamEvent> {
  const response = await send("GET", path, { ...options, headers: { accept: "text/event-stream" } });
  if (!response.ok || response.body === null) {
    await replyOf(response);
    return;
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      // An event may come in many pieces. Only a new piece, and the character before it, can end it.
      const searched = Math.max(rest.length - 1, 0);
      rest += decoder.decode(value, { stream: true });
      let end = rest.indexOf("\n\n", searched);
      while (end >= 0) {
        const event = eventOf(rest.slice(0, end));
        rest = rest.slice(end + 2);
        if (event) yield event;
        end = rest.indexOf("\n\n");
      }
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

function eventOf(block: string): StreamEvent | undefined {
  const fields = new Map(
    block.split("\n").map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon), line.slice(colon + 1).trimStart()];
    }),
  );
  const data = fields.get("data");
  return data === undefined ? undefined : { name: fields.get("event") ?? "message", id: fields.get("id"), data: parseReply(data) };
}

const encoded = encodeURIComponent;
const SEARCHES: Record<SearchKind, string> = {
  hybrid: "v1/contexts/search/hybrid",
  fts: "v1/contexts/search/fts",
  semantic: "v1/contexts/search/semantic",
  filters: "v1/contexts/search",
};

export const searchPath = (kind: SearchKind): string => SEARCHES[kind];

export const api = {
  statistics: (signal?: AbortSignal) => call<Statistics>("GET", "v1/statistics", { signal }),

  threads: (limit: number, offset: number, signal?: AbortSignal, name = "") =>
    call<Schemas["ListThreadsReply"]>("GET", "v1/threads", { query: { limit, offset, name: name || undefined }, signal }),

  /** A thread. If there is none: undefined for "." and "..", an ApiError for other ids. */
  thread: async (id: string): Promise<Thread | undefined> => {
    if (!/^\.\.?$/.test(id)) return call<Schemas["GetThreadReply"]>("GET", `v1/threads/${encoded(id)}`);
    // Browsers drop "." and ".." from a path, encoded or not. The list needs no path.
    for (let offset = 0; ; offset += 1000) {
      const { threads, has_more } = await api.threads(1000, offset, undefined, id);
      const found = threads.find(({ thread_id }) => thread_id === id);
      if (found !== undefined || !has_more) return found;
    }
  },

  metadataKeys: (signal?: AbortSignal) => call<Schemas["ListMetadataKeysReply"]>("GET", "v1/metadata/keys", { query: { limit: 500 }, signal }),

  metadataValues: (name: string, signal?: AbortSignal) =>
    call<Schemas["ListMetadataValuesReply"]>("GET", "v1/metadata/values", { query: { key: name, limit: 100 }, signal }),

  tags: (signal?: AbortSignal) => call<Schemas["ListTagsReply"]>("GET", "v1/tags", { query: { limit: 500 }, signal }),

  /** The number of entries on each day from this one on, newest day first. */
  days: (from: string, thread_id?: string, signal?: AbortSignal) =>
    call<Schemas["ListDaysReply"]>("GET", "v1/days", { query: { start_date: from, limit: 366, thread_id }, signal }),

  search: (kind: SearchKind, body: Record<string, unknown>, signal?: AbortSignal) =>
    call<Found>("POST", SEARCHES[kind], { body, signal }),

  entry: (id: number, images: boolean, signal?: AbortSignal) =>
    call<Entry>("GET", `v1/contexts/${id}`, { query: { include_images: images }, signal }),

  /** The changes after this cursor, at most one. The reply shows how far the cursor is behind. */
  changesAfter: (cursor: string, signal?: AbortSignal) =>
    call<Schemas["ListChangesReply"]>("GET", "v1/changes", { query: { cursor, limit: 1 }, signal }),

  /** The changes after this cursor, with the changed entries, as they are committed. */
  watch: (cursor: string, signal: AbortSignal) => events("v1/watch", { query: { cursor, include_body: true }, signal }),

  /** Changes an entry, if it still has this version. */
  update: (id: number, version: number, body: string) =>
    call<Schemas["UpdateContextReply"]>("PATCH", `v1/contexts/${id}`, { body, headers: { "if-match": `"${version}"` } }),

  remove: (id: number) => call<Schemas["DeleteContextReply"]>("DELETE", `v1/contexts/${id}`),

  artifacts: (limit: number, cursor: string | undefined, signal?: AbortSignal) =>
    call<Schemas["ListArtifactsReply"]>("GET", "v1/artifacts", { query: { limit, cursor }, signal }),

  findArtifacts: (query: string, signal?: AbortSignal) =>
    call<Schemas["SearchArtifactsReply"]>("GET", "v1/artifacts/search", { query: { query, limit: 50 }, signal }),

  artifact: (id: string, signal?: AbortSignal) => call<Artifact>("GET", `v1/artifacts/${encoded(id)}`, { signal }),

  versions: (id: string, signal?: AbortSignal) =>
    call<Schemas["ListArtifactVersionsReply"]>("GET", `v1/artifacts/${encoded(id)}/versions`, { signal }),

  version: (id: string, version: number, signal?: AbortSignal) =>
    call<Schemas["GetArtifactVersionReply"]>("GET", `v1/artifacts/${encoded(id)}/versions/${version}`, { signal }),

  diff: (id: string, from: number, to: number, signal?: AbortSignal) =>
    call<Schemas["DiffArtifactVersionsReply"]>("GET", `v1/artifacts/${encoded(id)}/diff`, {
      query: { from_version: from, to_version: to },
      signal,
    }),

  /** Makes an old version the newest one again, if the artifact still has the version that was read. */
  restore: (id: string, version: number, current: number) =>
    call<Schemas["RestoreArtifactVersionReply"]>("POST", `v1/artifacts/${encoded(id)}/versions/${version}/restore`, {
      headers: { "if-match": `"${current}"` },
    }),

  removeArtifact: (id: string) => call<Schemas["DeleteArtifactReply"]>("DELETE", `v1/artifacts/${encoded(id)}`),

  keys: (signal?: AbortSignal) => call<Schemas["ListApiKeysReply"]>("GET", "v1/api-keys", { signal }),

  createKey: (body: Schemas["CreateApiKeyRequest"]) =>
    call<Schemas["CreateApiKeyReply"]>("POST", "v1/api-keys", { body }),

  deactivateKey: (id: string) => call<ApiKey>("POST", `v1/api-keys/${encoded(id)}/deactivate`),

  metrics: async (signal?: AbortSignal): Promise<string> => {
    const response = await send("GET", "metrics", { signal });
    if (!response.ok) throw new ApiError(response.status, String(response.status), "There are no metrics here.");
    return response.text();
  },

  /** Calls that change nothing: a required parameter is missing, or the id is of no artifact. Their errors show what a key may do. */
  probes: {
    storeContext: () => call("POST", "v1/contexts", { body: {} }),
    deleteContext: () => call("POST", "v1/contexts/delete", { body: {} }),
    createArtifact: () => call("POST", "v1/artifacts", { body: {} }),
    deleteArtifact: () => call("DELETE", "v1/artifacts/00000000-0000-0000-0000-000000000000"),
  },
};
