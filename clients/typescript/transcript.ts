// Keeps JSON objects, such as the messages of a session, as the entries of a thread, in their order. It reads what
// clients/python/transcript.py writes, and the other way round.
//
// The text of an entry is what was said, so that searches find it. The object itself is JSON text in the metadata:
// there it may be of any depth and have U+0000, and long ones are continued in further entries.

import type { components } from "./openapi.d.ts";
import { done, once, type Service } from "./service.js";

export type Hit = components["schemas"]["SearchHit"];
type Filter = components["schemas"]["SearchContextRequest"];
type NewEntry = components["schemas"]["StoreContextRequest"];

export const PAGE = 100; // Maximum of a batch, and of the page of a search.
const PART_CHARS = 400_000; // A page of such parts is smaller than the largest reply.
const BATCH_CHARS = 16 << 20;
const TEXT_CHARS = 100_000;

/** The objects of a thread. Each of its entries has this metadata. */
export class Transcript<Item extends object> {
  constructor(
    private readonly service: Service,
    private readonly thread: string,
    private readonly metadata: Record<string, unknown>,
  ) {}

  /**
   * Stores pairs of an id and an object, in batches of at most 100 entries and about 16 MiB. A batch is stored
   * completely or not at all. An object is never split between batches, so a larger one is a batch of its own. One whose
   * JSON has more than 40 million characters is refused.
   */
  async append(items: Iterable<[string, Item]>): Promise<void> {
    let batch: NewEntry[] = [];
    let chars = 0;
    for (const [id, item] of items) {
      const entries = this.entries(id, item);
      const size = JSON.stringify(entries).length;
      if (batch.length > 0 && (batch.length + entries.length > PAGE || chars + size > BATCH_CHARS)) {
        await this.store(batch);
        [batch, chars] = [[], 0];
      }
      batch.push(...entries);
      chars += size;
    }
    if (batch.length > 0) await this.store(batch);
  }

  /** The newest objects (all without a limit), oldest first. */
  async newest(limit = Infinity): Promise<Item[]> {
    const found: Item[] = [];
    if (limit <= 0) return found;
    for await (const [, item] of this.newestFirst(limit)) if (found.push(item) >= limit) break;
    return found.reverse();
  }

  /** Deletes the newest object and returns it; undefined if there is none. */
  async pop(): Promise<Item | undefined> {
    for (;;) {
      const newest = await this.newestFirst(1).next();
      if (newest.done) return undefined;
      const [context_ids, item] = newest.value;
      const reply = done(await this.service.POST("/v1/contexts/delete", { body: { context_ids }, params: once() }));
      if (reply.deleted_count > 0) return item; // Otherwise another caller has deleted it.
    }
  }

  async clear(): Promise<void> {
    done(await this.service.POST("/v1/contexts/delete", { body: { thread_id: this.thread }, params: once() }));
  }

  /** Those of the ids that are stored. */
  async known(ids: string[]): Promise<Set<string>> {
    const found = new Set<string>();
    for (let start = 0; start < ids.length; start += PAGE) {
      // Only first parts are read. Two processes may have stored the same object.
      const metadata_filters = [
        { key: "message_id", operator: "in" as const, value: ids.slice(start, start + PAGE), case_sensitive: true },
        { key: "part", operator: "eq" as const, value: 0 },
      ];
      for await (const hit of pages(this.service, { thread_id: this.thread, metadata_filters })) found.add(field(hit, "message_id"));
    }
    return found;
  }

  private entries(message_id: string, item: Item): NewEntry[] {
    // Escaped, it is ASCII, so that no part begins within a character.
    const json = JSON.stringify(item).replace(/[\u007f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
    const parts = Math.ceil(json.length / PART_CHARS);
    const role = ("role" in item && item.role) || ("type" in item && item.type);
    return Array.from({ length: parts }, (_, part) => ({
      thread_id: this.thread,
      source: role === "user" ? "user" : "agent",
      text: part === 0 ? said(item) : `(part ${part + 1} of ${parts})`,
      metadata: { ...this.metadata, message_id, part, parts, json: json.slice(part * PART_CHARS, (part + 1) * PART_CHARS) },
    }));
  }

  private async store(entries: NewEntry[]): Promise<void> {
    done(await this.service.POST("/v1/contexts/batch", { body: { entries }, params: once() }));
  }

  /** The objects, each with the ids of its entries. Reads `pageSize` entries at a time. */
  private async *newestFirst(pageSize: number): AsyncGenerator<[number[], Item], void> {
    let ids: number[] = [];
    let later = "";
    for await (const hit of pages(this.service, { thread_id: this.thread }, pageSize)) {
      if (hit.metadata["json"] === undefined) continue; // Another program has stored it.
      // The last part of an object comes first. Parts that were read before it are of an object that has been deleted
      // meanwhile.
      if (hit.metadata["part"] === Number(hit.metadata["parts"]) - 1) [ids, later] = [[], ""];
      ids.push(hit.id);
      later = field(hit, "json") + later;
      if (hit.metadata["part"] === 0) yield [ids, JSON.parse(later)];
    }
  }
}

/**
 * All entries that satisfy a filter, newest first, read in pages of 2 to 100. Entries that are stored or deleted
 * meanwhile shift no page.
 */
export async function* pages(service: Service, only: Filter, pageSize = PAGE): AsyncGenerator<Hit, void> {
  const body = { ...only, limit: Math.max(2, Math.min(pageSize, PAGE)), offset: 0 };
  const read = new Set<number>(); // The ids, already yielded, of entries whose time is `end_date`.
  for (;;) {
    const page = done(await service.POST("/v1/contexts/search", { body }));
    const first = page.results[0];
    // Each page begins with an entry of the previous one. If it does not, entries before it were deleted.
    if (body.offset > 0 && !(first && read.has(first.id))) {
      body.offset >>= 1;
      continue;
    }
    for (const hit of page.results) if (!read.has(hit.id)) yield hit;
    const oldest = page.results.at(-1)?.created_at;
    if (!page.has_more || oldest === undefined) return;
    if (body.end_date !== oldest) {
      [body.end_date, body.offset] = [oldest, 0];
      read.clear();
    }
    const last = page.results.filter((hit) => hit.created_at === oldest);
    for (const hit of last) read.add(hit.id);
    body.offset += last.length - 1;
  }
}

export function field(hit: Hit, name: string): string {
  return String(hit.metadata[name] ?? "");
}

/** The words of a message of Claude Code or of OpenAI's API; otherwise its type. */
function said(item: object): string {
  const message: Record<string, unknown> = "message" in item && item.message instanceof Object ? { ...item.message } : { ...item };
  let words = message["content"] || message["output"] || message["arguments"];
  if (Array.isArray(words)) words = words.map((block) => block?.text).filter((text) => typeof text === "string").join("\n");
  // What cannot be stored: U+0000, and halves of surrogate pairs.
  const text = typeof words === "string" ? words.slice(0, TEXT_CHARS).replaceAll("\0", "").replace(/\p{Surrogate}/gu, "?") : "";
  // The service counts U+0085 as blank, and \s does not.
  return /^[\s\u0085]*$/.test(text) ? `(${"type" in item ? item.type : "message"})` : text;
}
