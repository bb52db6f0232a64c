// The rules of LangGraph's own store: which items a filter selects, and which texts of a value a search sees.

import type { MatchCondition } from "@langchain/langgraph-checkpoint";

import type { components } from "./openapi.d.ts";

export type Filter = components["schemas"]["MetadataFilter"];

/** The filters for the part of a condition that the service can check: equality with a text, a number or a boolean. */
export function metadataFilters(key: string, wanted: unknown): Filter[] {
  const value = hasOperators(wanted) ? wanted["$eq"] : wanted;
  return /^[\w-]{1,500}$/.test(key) && canBeSent(value) ? [{ key: `value.${key}`, operator: "eq", value }] : [];
}

/** Whether the service compares with this value. It refuses U+0000, infinite numbers and integers beyond 64 bits. */
function canBeSent(value: unknown): boolean {
  if (typeof value === "number") return Math.abs(value) < 2 ** 63;
  return typeof value === "boolean" || (typeof value === "string" && !value.includes("\0"));
}

const COMPARED: Record<string, (value: unknown, operand: unknown) => boolean> = {
  $eq: (value, operand) => value === operand,
  $ne: (value, operand) => value !== operand,
  $gt: (value, operand) => Number(value) > Number(operand),
  $gte: (value, operand) => Number(value) >= Number(operand),
  $lt: (value, operand) => Number(value) < Number(operand),
  $lte: (value, operand) => Number(value) <= Number(operand),
  $in: (value, operand) => Array.isArray(operand) && operand.includes(value),
  $nin: (value, operand) => !Array.isArray(operand) || !operand.includes(value),
};

function hasOperators(wanted: unknown): wanted is Record<string, unknown> {
  return typeof wanted === "object" && wanted !== null && Object.keys(wanted).every((name) => Object.hasOwn(COMPARED, name));
}

/** Whether a value meets a condition, by the rules of LangGraph's own store: no list or object equals another one. */
export function matches(value: unknown, wanted: unknown): boolean {
  if (!hasOperators(wanted)) return value === wanted;
  return Object.entries(wanted).every(([operator, operand]) => COMPARED[operator]?.(value, operand));
}

/** Whether a namespace has the prefix or suffix that the condition requires. */
export function meets(namespace: string[], { matchType, path }: MatchCondition): boolean {
  const start = matchType === "prefix" ? 0 : namespace.length - path.length;
  return start >= 0 && path.length <= namespace.length && path.every((name, at) => name === "*" || name === namespace[start + at]);
}

/** The texts of a value at a path such as `title`, `chapters[*].content` or `{title,author.name}`. */
export function textsAt(value: unknown, path: string): string[] {
  let found = [value];
  for (const [step] of path === "$" ? [] : path.matchAll(/\{[^}]*\}|\[[^\]]*\]|[^.[{]+/g)) {
    const inside = step.slice(1, -1);
    found = found.flatMap((one): unknown[] => {
      if (typeof one !== "object" || one === null) return [];
      if (step === "*") return Object.values(one);
      if (step.startsWith("{")) return inside.split(",").flatMap((field) => textsAt(one, field.trim()));
      if (step.startsWith("[")) return !Array.isArray(one) ? [] : inside === "*" ? one : [one.at(Number(inside))];
      return [(one as Record<string, unknown>)[step]];
    });
  }
  const texts = found.filter((one) => one !== undefined && one !== null);
  return texts.map((one) => (typeof one === "object" ? JSON.stringify(one) : String(one)));
}
