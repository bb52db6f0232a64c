// JSON whose numbers stay as they were written. Metadata can contain 64-bit integers, and distinguishes 1.0 from 1. A
// JavaScript number would change both, and an edit would then store the change. Not every browser for which the page is
// built gives a reviver of JSON.parse the source text, so such numbers are parsed as texts.

/** A number that a JavaScript number would change. */
export class Exact {
  constructor(readonly source: string) {}
}

/** Precedes such a number while it is a text. It is random, so that no stored text begins with it. */
const MARK = `number ${Math.random()} `;

/** Matches a text that may contain such a number. A text without a match is parsed faster. */
const MAY_HAVE_EXACT = /\d{16}|\d\.\d*0(?!\d)|\d[eE][+-]?\d/;

/**
 * Parses a reply of the service. Numbers below a key `metadata`, or `value` in a list of metadata values, may be `Exact`;
 * all others are numbers.
 */
export function parseReply(text: string): unknown {
  return MAY_HAVE_EXACT.test(text) ? unmarked(JSON.parse(marked(text)), false) : JSON.parse(text);
}

/** The JSON with every number that a JavaScript number would change as a marked text. */
function marked(text: string): string {
  let inText = false;
  const parts = text.split('"').map((part) => {
    if (!inText) {
      inText = true;
      return part.replace(/-?\d[\d.eE+-]*/g, (number) => (String(Number(number)) === number ? number : `"${MARK}${number}"`));
    }
    // After an odd number of backslashes, a quote does not end the text.
    inText = /(?:^|[^\\])(?:\\\\)*\\$/.test(part);
    return part;
  });
  return parts.join('"');
}

/** Turns marked texts into `Exact` in metadata and its values, and into numbers elsewhere. */
function unmarked(value: unknown, exact: boolean): unknown {
  if (typeof value === "string" && value.startsWith(MARK)) {
    const source = value.slice(MARK.length);
    return exact ? new Exact(source) : Number(source);
  }
  if (Array.isArray(value)) return value.map((item) => unmarked(item, exact));
  if (isObject(value)) {
    for (const [key, inner] of Object.entries(value)) value[key] = unmarked(inner, exact || key === "metadata" || key === "value");
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
