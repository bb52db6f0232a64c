// A search: read from and written to the URL, and converted to a request and to commands.

import type { FtsMode, Operator, SearchKind } from "./api";
import { compact, Exact } from "./json";
import { to } from "./route";

export interface Condition {
  key: string;
  operator: Operator;
  /** As typed: `5` and `true` are a number and a boolean, `"5"` is a text; `in` takes several, with commas. */
  value: string;
}

export interface Query {
  kind: SearchKind;
  text: string;
  mode: FtsMode;
  thread: string;
  source: string;
  type: string;
  tags: string;
  from: string;
  until: string;
  conditions: Condition[];
}

export const KINDS: { kind: SearchKind; label: string; hint: string }[] = [
  { kind: "hybrid", label: "Best", hint: "Words and meaning together (hybrid)" },
  { kind: "fts", label: "Words", hint: "Full text: the words, stemmed" },
  { kind: "semantic", label: "Meaning", hint: "Semantic: entries about the same, in other words" },
  { kind: "filters", label: "Filters only", hint: "What satisfies the filters below, newest first" },
];

export const FTS_MODES: { mode: FtsMode; label: string }[] = [
  { mode: "match", label: "the words" },
  { mode: "prefix", label: "beginnings of words" },
  { mode: "phrase", label: "this phrase" },
  { mode: "boolean", label: "AND, OR, NOT, \"…\", *" },
];

export const OPERATORS: { operator: Operator; label: string }[] = [
  { operator: "eq", label: "is" },
  { operator: "ne", label: "is not" },
  { operator: "gt", label: ">" },
  { operator: "gte", label: "≥" },
  { operator: "lt", label: "<" },
  { operator: "lte", label: "≤" },
  { operator: "in", label: "is one of" },
  { operator: "not_in", label: "is none of" },
  { operator: "contains", label: "contains" },
  { operator: "starts_with", label: "starts with" },
  { operator: "ends_with", label: "ends with" },
  { operator: "array_contains", label: "has the item" },
  { operator: "exists", label: "exists" },
  { operator: "not_exists", label: "does not exist" },
  { operator: "is_null", label: "is null" },
  { operator: "is_not_null", label: "is not null" },
];

export const takesValue = (operator: Operator): boolean =>
  !["exists", "not_exists", "is_null", "is_not_null"].includes(operator);
export const takesText = (operator: Operator): boolean => ["contains", "starts_with", "ends_with"].includes(operator);
export const takesList = (operator: Operator): boolean => ["in", "not_in"].includes(operator);

export function read(given: URLSearchParams): Query {
  const kind = KINDS.find(({ kind }) => kind === given.get("kind"))?.kind ?? "hybrid";
  return {
    kind,
    text: given.get("q") ?? "",
    mode: FTS_MODES.find(({ mode }) => mode === given.get("mode"))?.mode ?? "match",
    thread: given.get("thread") ?? "",
    source: given.get("source") ?? "",
    type: given.get("type") ?? "",
    tags: given.get("tags") ?? "",
    from: given.get("from") ?? "",
    until: given.get("until") ?? "",
    conditions: readConditions(given.get("where")),
  };
}

function readConditions(text: string | null): Condition[] {
  try {
    const list: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(list)) return [];
    return list.flatMap((item: unknown) => {
      if (!Array.isArray(item) || item.length !== 3) return [];
      const [key, operator, value] = item.map(String);
      const found = OPERATORS.find((each) => each.operator === operator)?.operator;
      return found === undefined ? [] : [{ key: key ?? "", operator: found, value: value ?? "" }];
    });
  } catch {
    return [];
  }
}

export function link(query: Query): string {
  const where = query.conditions.filter(({ key }) => key.trim() !== "");
  return to("search", undefined, {
    q: query.text,
    kind: query.kind,
    mode: query.kind === "fts" && query.mode !== "match" ? query.mode : "",
    thread: query.thread,
    source: query.source,
    type: query.type,
    tags: query.tags,
    from: query.from,
    until: query.until,
    where: where.length === 0 ? "" : JSON.stringify(where.map(({ key, operator, value }) => [key, operator, value])),
  });
}

export function filterCount(query: Query): number {
  const given = [query.thread, query.source, query.type, query.tags, query.from, query.until];
  return given.filter((value) => value !== "").length + query.conditions.filter(({ key }) => key.trim() !== "").length;
}

function typed(text: string): unknown {
  const trimmed = text.trim();
  if (/^(?:-?\d+(?:\.\d+)?|true|false)$/.test(trimmed)) {
    const json = trimmed.replace(/^(-?)0+(?=\d)/, "$1");
    // Metadata can contain 64-bit integers.
    const isExact = /^-?\d+$/.test(json) && !Number.isSafeInteger(Number(json));
    return isExact ? new Exact(json) : JSON.parse(json);
  }
  const quoted = /^"(.*)"$/s.exec(trimmed)?.[1];
  return quoted === undefined ? trimmed : unescaped(quoted);
}

const inQuotes = (text: string): string => `"${text.replace(/["\\]/g, "\\$&")}"`;
/** The text between the quotes that `inQuotes` adds. */
const unescaped = (text: string): string => text.replace(/\\(["\\])/g, "$1");

/**
 * A value as this operator's filter reads it. A text that would be trimmed, split, unquoted, or read as a number or a
 * boolean is in quotes.
 */
export function written(value: unknown, operator: Operator): string {
  if (typeof value !== "string") return compact(value);
  if (takesText(operator)) return value;
  const changes = value !== value.trim() || /^(?:-?\d+(?:\.\d+)?|true|false|".*)?$/s.test(value);
  return changes || (takesList(operator) && value.includes(",")) ? inQuotes(value) : value;
}

/** The items of a list with commas between them. An item in quotes may contain commas. It keeps its quotes. */
const listed = (text: string): string[] =>
  [...text.matchAll(/\s*("(?:[^"\\]|\\.)*"(?=\s*(?:,|$))|[^,]+)/g)].map(([, item]) => item?.trim() ?? "").filter((item) => item !== "");

/** The tags in a list as `tagList` writes it. */
export const tagsIn = (text: string): string[] =>
  listed(text).map((item) => (/^"(?:[^"\\]|\\.)*"$/.test(item) ? unescaped(item.slice(1, -1)) : item)).filter((tag) => tag !== "");

/** Tags as a list with commas between them. A tag that a list would split or change is in quotes. */
export const tagList = (tags: string[]): string =>
  tags.map((tag) => (/,|^"/.test(tag) || tag !== tag.trim() ? inQuotes(tag) : tag)).join(", ");

/** The filters in the form of the request. */
export function filters(query: Query): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  if (query.thread !== "") body["thread_id"] = query.thread;
  if (query.source !== "") body["source"] = query.source;
  if (query.type !== "") body["content_type"] = query.type;
  const tags = tagsIn(query.tags);
  if (tags.length > 0) body["tags"] = tags;
  if (query.from !== "") body["start_date"] = query.from;
  if (query.until !== "") body["end_date"] = query.until;
  const conditions = query.conditions.filter(({ key }) => key.trim() !== "");
  if (conditions.length > 0) {
    body["metadata_filters"] = conditions.map(({ key, operator, value }) => {
      const condition: Record<string, unknown> = { key: key.trim(), operator };
      if (takesList(operator)) condition["value"] = listed(value).map(typed);
      else if (takesText(operator)) condition["value"] = value;
      else if (takesValue(operator)) condition["value"] = typed(value);
      return condition;
    });
  }
  return body;
}

/** The body of the request, which is also the arguments of the MCP tool. */
export function request(query: Query): Record<string, unknown> {
  const body: Record<string, unknown> = query.kind === "filters" ? {} : { query: query.text };
  if (query.kind === "fts") {
    body["mode"] = query.mode;
    body["highlight"] = true;
  }
  return { ...body, ...filters(query) };
}
