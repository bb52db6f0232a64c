// The same search as a command for a terminal or an agent.

import { address, searchPath, session, type SearchKind } from "./api";
import { compact, Exact, pretty } from "./json";

const TOOLS: Record<SearchKind, { tool: string; rpc: string }> = {
  hybrid: { tool: "hybrid_search_context", rpc: "HybridSearchContext" },
  fts: { tool: "fts_search_context", rpc: "FtsSearchContext" },
  semantic: { tool: "semantic_search_context", rpc: "SemanticSearchContext" },
  filters: { tool: "search_context", rpc: "SearchContext" },
};

/** A text that a shell reads as one word. */
export function quoted(text: string): string {
  return /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The beginning of a curl command, up to the URL. Without a port of its own, the service is reached over its socket. */
export function curlTo(path: string): string {
  const socket = session()?.socket;
  return socket === undefined ? `curl -s ${quoted(address(path).href)}` : `curl -s --unix-socket ${quoted(socket)} ${quoted(`http://localhost/${path}`)}`;
}

export function curl(kind: SearchKind, body: Record<string, unknown>, keyed: boolean): string {
  const key = keyed ? ' \\\n  -H "Authorization: Bearer $CONTEXT_API_KEY"' : "";
  return `${curlTo(searchPath(kind))}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(compact(body))}`;
}

export function grpcurl(kind: SearchKind, body: Record<string, unknown>, keyed: boolean): string {
  const base = address("");
  const plaintext = base.protocol === "http:" ? " -plaintext" : "";
  const key = keyed ? ' -H "Authorization: Bearer $CONTEXT_API_KEY"' : "";
  const socket = session()?.socket;
  const host = base.port === "" ? `${base.hostname}:${base.protocol === "http:" ? 80 : 443}` : base.host;
  const to = socket === undefined ? quoted(host) : `-unix ${quoted(socket)}`;
  return `grpcurl${plaintext}${key} \\\n  -d ${quoted(JSON.stringify(message(body)))} \\\n  ${to} context.v1.ContextService/${TOOLS[kind].rpc}`;
}

export function mcp(kind: SearchKind, body: Record<string, unknown>): string {
  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: TOOLS[kind].tool, arguments: body } };
  return pretty(call);
}

const FILTERS = ["thread_id", "source", "tags", "content_type", "metadata_filters", "start_date", "end_date"];

/** The request as protobuf's JSON: filters are a separate message, and values name their type. */
export function message(body: Record<string, unknown>): Record<string, unknown> {
  const outer: Record<string, unknown> = {};
  const filter: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(body)) {
    if (!FILTERS.includes(name)) outer[name] = value;
    else if (name === "tags") filter[name] = { values: value };
    else if (name === "metadata_filters") {
      filter[name] = (value as Record<string, unknown>[]).map((condition) =>
        "value" in condition ? { ...condition, value: valueMessage(condition["value"]) } : condition,
      );
    } else filter[name] = value;
  }
  return Object.keys(filter).length > 0 ? { ...outer, filter } : outer;
}

function valueMessage(value: unknown): Record<string, unknown> {
  if (value instanceof Exact) return { int_value: value.source };
  if (typeof value === "boolean") return { bool_value: value };
  if (typeof value === "number") return Number.isInteger(value) ? { int_value: String(value) } : { double_value: value };
  if (Array.isArray(value)) return { list_value: { values: value.map(valueMessage) } };
  return { string_value: String(value) };
}
