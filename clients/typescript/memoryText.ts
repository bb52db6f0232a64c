// The texts of the memory tool: paths, contents, and what the model reads. Nothing here calls the service.

import type { MemoryToolHandlers } from "@anthropic-ai/sdk/helpers/beta/memory";

import type { components } from "./openapi.d.ts";

type Schemas = components["schemas"];
type Metadata = Record<string, unknown>;
export type Command<K extends keyof MemoryToolHandlers> = Parameters<MemoryToolHandlers[K]>[0];

export const ROOT = "/memories";
const [MAX_CHARS, MAX_LINES] = [100_000, 999_999];
const MAX_PATH_CHARS = 1_023; // The service takes 1 024, and files in a directory begin with its path and a slash.
// An artifact cannot be blank. A blank file has this content, and its text is in this field of the metadata.
const [BLANK_CONTENT, BLANK_FIELD] = ["(This memory file is blank.)", "blank_memory_file"];

/** The path without empty parts. One that would lead out of /memories is refused, however it is encoded. */
export function checked(path: string): string {
  if (!`${path}/`.startsWith(`${ROOT}/`)) throw new Error(`Path must start with /memories, got: ${path}`);
  let [decoded, encoded] = [path, ""];
  while (decoded !== encoded) {
    encoded = decoded;
    decoded = decoded.replace(/%([0-7][0-9a-f])/gi, (_, code: string) => String.fromCharCode(parseInt(code, 16)));
  }
  if (decoded.split(/[/\\]/).includes("..")) throw new Error(`Path ${path} would escape /memories directory`);
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  const plain = `/${parts.join("/")}`;
  const length = [...plain].length;
  if (length > MAX_PATH_CHARS) throw new Error(`The path has ${length} characters; the maximum is ${MAX_PATH_CHARS}.`);
  return plain;
}

/** The content of a file's artifact, and its metadata if they change. */
export function stored(text: string, metadata: Metadata, path: string): { content: string; metadata?: Metadata } {
  const length = [...text].length;
  if (length > MAX_CHARS) {
    throw new Error(`The file ${path} would have ${length} characters; the maximum is ${MAX_CHARS}.`);
  }
  // The service counts U+0085 as blank, and \s does not.
  if (/^[\s\u0085]*$/.test(text)) return { content: BLANK_CONTENT, metadata: { ...metadata, [BLANK_FIELD]: text } };
  const { [BLANK_FIELD]: blank, ...others } = metadata;
  return blank === undefined ? { content: text } : { content: text, metadata: others };
}

export function textOf(file: Schemas["Artifact"]): string {
  const blank = file.metadata[BLANK_FIELD];
  // Another client may have written to the artifact of a blank file.
  return typeof blank === "string" && file.content === BLANK_CONTENT ? blank : file.content;
}

/** Whether the preview is the text of the file. Longer contents are cut to 200 characters and `...`. */
export function isWhole(file: Schemas["ArtifactSummary"]): boolean {
  return [...file.content_preview].length <= 200 && !(BLANK_FIELD in file.metadata);
}

/** The text after the command, and the reply. */
export function replaced(text: string, command: Command<"str_replace">): [string, string] {
  const { old_str: old, new_str, path } = command;
  const found: number[] = [];
  // The empty text occurs at every position. At the end, indexOf finds it again and again, which ends the loop.
  for (let at = text.indexOf(old); at > (found.at(-1) ?? -1); at = text.indexOf(old, at + 1)) found.push(at);
  const lines = found.map((at) => text.slice(0, at).split("\n").length);
  const [[at], [line]] = [found, lines];
  if (at === undefined || line === undefined) {
    throw new Error(`No replacement was performed, old_str \`${old}\` did not appear verbatim in ${path}.`);
  }
  if (found.some((other) => other > at && other >= at + old.length)) {
    const problem = `Multiple occurrences of old_str \`${old}\` in lines: ${lines.join(", ")}.`;
    throw new Error(`No replacement was performed. ${problem} Please ensure it is unique`);
  }
  const changed = text.slice(0, at) + new_str + text.slice(at + old.length);
  const first = Math.max(1, line - 2);
  const snippet = numbered(changed.split("\n").slice(first - 1, line + 2), first);
  const title = "The memory file has been edited. Here is the snippet showing the change (with line numbers):";
  return [changed, `${title}\n${snippet}`];
}

/** The text after the command, and the reply. */
export function inserted(text: string, command: Command<"insert">): [string, string] {
  const { insert_line: at, insert_text, path } = command;
  const lines = text.split("\n");
  if (at < 0 || at > lines.length) {
    const problem = `It should be within the range of lines of the file: [0, ${lines.length}]`;
    throw new Error(`Invalid \`insert_line\` parameter: ${at}. ${problem}`);
  }
  lines.splice(at, 0, insert_text.replace(/\n$/, ""));
  return [lines.join("\n"), `The file ${path} has been edited.`];
}

/** The reply to a command that views a file. */
export function shown(text: string, { path, view_range }: Command<"view">): string {
  const lines = text.split("\n");
  if (lines.length > MAX_LINES) {
    throw new Error(`File ${path} has too many lines (${lines.length}). Maximum is 999,999 lines.`);
  }
  const [start = 1, last = -1] = view_range?.length === 2 ? view_range : [];
  const first = Math.max(start, 1);
  const part = lines.slice(first - 1, last === -1 ? undefined : last);
  return `Here's the content of ${path} with line numbers:\n${numbered(part, first)}`;
}

/**
 * The reply to a command that views a directory: two levels of it in order, with the sizes of all files below.
 * `files` has the size of each file in bytes, by the file's path.
 */
export function listed(path: string, files: Map<string, number>, command: Command<"view">): string {
  const totals = new Map<string, number>();
  let all = 0;
  for (const [file, size] of files) {
    const parts = file.slice(path.length + 1).split("/");
    all += size;
    for (const depth of parts.length === 1 ? [1] : [1, 2]) {
      // A NUL, which is in no path, sorts the contents of a directory directly after the directory.
      const level = parts.slice(0, depth).join("\0") + (depth < parts.length ? "\0" : "");
      totals.set(level, (totals.get(level) ?? 0) + size);
    }
  }
  const levels = [...totals.keys()].filter((level) => !/(^|\0)(\.|node_modules(\0|$))/.test(level)).sort();
  const rows = levels.map((level) => `${human(totals.get(level) ?? 0)}\t${path}/${level.replaceAll("\0", "/")}`);
  const title = `Here're the files and directories up to 2 levels deep in ${command.path}`;
  return [`${title}, excluding hidden items and node_modules:`, `${human(all)}\t${path}`, ...rows].join("\n");
}

function numbered(lines: string[], first: number): string {
  return lines.map((line, at) => `${`${first + at}`.padStart(6)}\t${line}`).join("\n");
}

function human(size: number): string {
  const unit = size < 1024 ? 0 : size < 1024 ** 2 ? 1 : size < 1024 ** 3 ? 2 : 3;
  const scaled = size / 1024 ** unit;
  return `${Number.isInteger(scaled) ? scaled : scaled.toFixed(1)}${"BKMG"[unit]}`;
}
