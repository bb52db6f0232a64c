// Keeps the long-term memory of LangGraph in the context service.
//
//   const graph = builder.compile({ store: new ContextStore(connect("http://127.0.0.1:7420")) });
//
// An item is the artifact at `<root>/<namespace>/<key>`, and its value is metadata. Every version of a value is kept.

import { BaseStore, validateNamespace } from "@langchain/langgraph-checkpoint";
import type {
  GetOperation,
  Item,
  ListNamespacesOperation,
  Operation,
  OperationResults,
  PutOperation,
  SearchItem,
  SearchOperation,
} from "@langchain/langgraph-checkpoint";

import { matches, meets, metadataFilters, textsAt } from "./langgraph_rules.js";
import type { Filter } from "./langgraph_rules.js";
import type { components } from "./openapi.d.ts";
import { done, once, Refused } from "./service.js";
import type { Service } from "./service.js";

type Schemas = components["schemas"];
/** The fields of an artifact that every kind of reply has. */
type Found = { path?: string | null; metadata: Record<string, unknown>; created_at: string; updated_at: string };

const CONTENT_CHARS = 100_000, QUERY_CHARS = 10_000; // Longer texts are cut.
const LIST_PAGE = 50, SEARCH_PAGE = 100, SEARCH_DEPTH = 10_000; // The service's limits.

/**
 * A `BaseStore`. A search with a query is a hybrid search: by words, and by meaning if the service has a model.
 *
 * `fields` are the parts of a value that such searches read, unless `put` names others. The default is the whole value.
 */
export class ContextStore extends BaseStore {
  private readonly root: string;
  private readonly fields: string[];

  constructor(private readonly service: Service, options: { root?: string; fields?: string[] } = {}) {
    super();
    this.root = options.root ?? "langgraph";
    this.fields = options.fields ?? ["$"];
  }

  override async batch<Op extends Operation[]>(operations: Op): Promise<OperationResults<Op>> {
    for (const op of operations) if ("namespace" in op) validateNamespace(op.namespace, { allowReservedRoot: true });
    // As in LangGraph's own store, reads see what was there before the batch, and the last write of a key counts.
    const results: unknown[] = [];
    for (const op of operations) results.push(await this.result(op));
    const puts = operations.filter((op): op is PutOperation => "value" in op);
    for (const op of new Map(puts.map((op) => [this.path(op.namespace, op.key), op])).values()) await this.write(op);
    return results as OperationResults<Op>;
  }

  private result(op: Operation): Promise<unknown> | null {
    if ("namespacePrefix" in op) return this.searched(op);
    if ("value" in op) return null;
    return "key" in op ? this.item(op) : this.namespaces(op);
  }

  private async item(op: GetOperation): Promise<Item | null> {
    const found = await this.at(this.path(op.namespace, op.key));
    return found && this.itemOf(found);
  }

  private async write(op: PutOperation): Promise<void> {
    const path = this.path(op.namespace, op.key);
    for (;;) {
      const found = await this.at(path);
      try {
        if (op.value !== null) await this.set(found?.id, path, op.key, op.value, op.index);
        else if (found) {
          const params = { path: { artifact_id: found.id }, ...once() };
          done(await this.service.DELETE("/v1/artifacts/{artifact_id}", { params }));
        }
        return;
      } catch (error) {
        // Another caller has created or deleted the item in between: read it again.
        if (!(error instanceof Refused) || !["PATH_TAKEN", "ARTIFACT_NOT_FOUND"].includes(error.reason)) throw error;
      }
    }
  }

  private async set(id: string | undefined, path: string, key: string, value: object, index?: false | string[]): Promise<void> {
    const words = (index === false ? [] : index ?? this.fields).flatMap((field) => textsAt(value, field)).join("\n");
    const text = cut(words, CONTENT_CHARS);
    // Searches cannot filter by the path of an artifact, so the metadata repeats it.
    const metadata = { path, searchable: text !== "", value };
    const body = { content: text || "(not searchable)", title: [...key].slice(0, 200).join(""), metadata };
    if (id === undefined) {
      done(await this.service.POST("/v1/artifacts", { params: once(), body: { path, ...body } }));
    } else {
      const params = { path: { artifact_id: id }, ...once() };
      done(await this.service.PATCH("/v1/artifacts/{artifact_id}", { params, body: { ...body, return_content: false } }));
    }
  }

  private async searched(op: SearchOperation): Promise<SearchItem[]> {
    const { filter = {}, offset = 0, limit = 10 } = op;
    // The service's filters ignore case and cannot express every condition, so each item is checked again below.
    const filters = Object.entries(filter).flatMap(([key, wanted]) => metadataFilters(key, wanted));
    const size = Object.keys(filter).length > 0 ? SEARCH_PAGE : Math.max(1, offset + limit);
    const query = cut(op.query ?? "", QUERY_CHARS);
    const found = query ? this.ranked(op.namespacePrefix, query, filters, size) : this.listed(op.namespacePrefix, filters, size);
    const items: SearchItem[] = [];
    if (limit <= 0) return items;
    let matching = 0;
    for await (const item of found) {
      if (!Object.entries(filter).every(([key, wanted]) => matches(item.value[key], wanted))) continue;
      if (++matching > offset) items.push(item);
      if (items.length === limit) break;
    }
    return items;
  }

  /** The items of a namespace and those below it, newest first. */
  private async *listed(namespace: string[], filters: Filter[] = [], size = LIST_PAGE): AsyncGenerator<SearchItem> {
    const query = { path_prefix: this.path(namespace, ""), metadata_filters: JSON.stringify(filters), limit: Math.min(size, LIST_PAGE) };
    for (let cursor: string | null | undefined; cursor !== null; ) {
      const params = { query: cursor === undefined ? query : { ...query, cursor } };
      const page = done(await this.service.GET("/v1/artifacts", { params }));
      for (const found of page.result) yield this.itemOf(found);
      cursor = page.next_cursor ?? null;
    }
  }

  /** The items that a query finds, best first. */
  private async *ranked(namespace: string[], query: string, filters: Filter[], size: number): AsyncGenerator<SearchItem> {
    const [prefix, limit] = [this.path(namespace, ""), Math.min(size, SEARCH_PAGE)];
    const own: Filter[] = [{ key: "path", operator: "starts_with", value: prefix }, { key: "searchable", operator: "eq", value: true }];
    const body = { query, include: ["artifacts" as const], metadata_filters: [...filters, ...own], limit };
    for (let offset = 0; offset <= SEARCH_DEPTH; offset += limit) {
      const page = done(await this.service.POST("/v1/contexts/search/hybrid", { body: { ...body, offset } }));
      for (const hit of page.results) {
        if (!("artifact_id" in hit) || !hit.path?.startsWith(prefix)) continue;
        yield hit.relevance == null ? this.itemOf(hit) : { ...this.itemOf(hit), score: hit.relevance };
      }
      if (!page.has_more) return;
    }
  }

  private async namespaces(op: ListNamespacesOperation): Promise<string[][]> {
    const conditions = op.matchConditions ?? [];
    // No operation lists namespaces, so all items below the longest prefix are read.
    let longest: string[] = [];
    for (const { matchType, path } of conditions) {
      const star = path.indexOf("*");
      const literal = star < 0 ? path : path.slice(0, star);
      if (matchType === "prefix" && literal.length > longest.length) longest = literal;
    }
    const found = new Map<string, string[]>();
    for await (const { namespace } of this.listed(longest)) {
      if (!conditions.every((condition) => meets(namespace, condition))) continue;
      const part = namespace.slice(0, op.maxDepth);
      found.set(part.join(":"), part);
    }
    const [offset, limit] = [op.offset ?? 0, op.limit ?? found.size];
    const sorted = [...found].sort(([one], [other]) => one.localeCompare(other));
    return sorted.slice(offset, offset + limit).map(([, namespace]) => namespace);
  }

  private async at(path: string): Promise<Schemas["Artifact"] | null> {
    const reply = await this.service.GET("/v1/artifacts/by-path", { params: { query: { path } } });
    return reply.error?.reason === "ARTIFACT_NOT_FOUND" ? null : done(reply);
  }

  private path(namespace: string[], key: string): string {
    const names = [...namespace, key].map((name) => name.replaceAll("%", "%25").replaceAll("/", "%2F"));
    return [this.root, ...names].join("/");
  }

  /** The item that an artifact stores. */
  private itemOf(found: Found): Item {
    const names = (found.path ?? "").slice(this.root.length + 1).split("/");
    const namespace = names.map((name) => name.replaceAll("%2F", "/").replaceAll("%25", "%"));
    const key = namespace.pop() ?? "";
    const value = (found.metadata["value"] ?? {}) as Item["value"];
    return { namespace, key, value, createdAt: new Date(found.created_at), updatedAt: new Date(found.updated_at) };
  }
}

/** The beginning of a text, trimmed and without U+0000: the service refuses U+0000 and blank texts. */
function cut(text: string, chars: number): string {
  return [...text.replaceAll("\0", "")].slice(0, chars).join("").replace(/^[\s\u0085]+|[\s\u0085]+$/g, "");
}
