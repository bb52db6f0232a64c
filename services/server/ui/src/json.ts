// JSON whose numbers stay as they were written. Metadata can contain 64-bit integers, and distinguishes 1.0 from 1. A
// JavaScript number would change both, and an edit would then store the change. That still happens in browsers whose
// JSON.parse gives the reviver no source text: before Chrome 114, Firefox 135 and Safari 18.4.

/** A number that a JavaScript number would change. */
export class Exact {
  constructor(readonly source: string) {}
}

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

/** Matches a text that may contain such a number. A text without a match is parsed faster, without a reviver. */
const MAY_HAVE_EXACT = /\d{16}|\d\.\d*0(?!\d)|\d[eE][+-]?\d/;

/**
 * Parses a reply of the service. Numbers below a key `metadata`, or `value` in a list of metadata values, may be `Exact`;
 * all others are numbers.
 */
export function parseReply(text: string): unknown {
  return MAY_HAVE_EXACT.test(text) ? settled(parse(text)) : JSON.parse(text);
}

function parse(text: string): unknown {
  const keep: Reviver = (_key, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source
      ? new Exact(context.source)
      : value;
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown);
}

/** Turns `Exact` into numbers, except in metadata and its values. */
function settled(value: unknown): unknown {
  if (value instanceof Exact) return Number(value.source);
  if (Array.isArray(value)) return value.map(settled);
  if (isObject(value)) {
    for (const [key, inner] of Object.entries(value)) {
      if (key !== "metadata" && key !== "value") value[key] = settled(inner);
    }
  }
  return value;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Exact);
}

/** JSON text in one line, with every number as it was written. */
export function compact(value: unknown): string {
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value)) return `[${value.map(compact).join(",")}]`;
  if (isObject(value)) {
    const fields = Object.entries(value).filter(([, item]) => item !== undefined);
    return `{${fields.map(([key, item]) => `${JSON.stringify(key)}:${compact(item)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

/** Metadata as indented JSON text, with every number as it was written. */
export function pretty(value: unknown, indent = ""): string {
  if (value instanceof Exact) return value.source;
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return `[\n${value.map((item) => inner + pretty(item, inner)).join(",\n")}\n${indent}]`;
  }
  if (isObject(value)) {
    const fields = Object.entries(value);
    if (fields.length === 0) return "{}";
    const lines = fields.map(([key, item]) => `${inner}${JSON.stringify(key)}: ${pretty(item, inner)}`);
    return `{\n${lines.join(",\n")}\n${indent}}`;
  }
  return JSON.stringify(value);
}
