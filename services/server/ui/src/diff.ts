// Reads a unified diff, and pairs its lines for a view side by side.

// `before` and `after` are its line numbers in the two texts. A gap is the place of lines that the diff leaves out,
// or a remark of the diff, such as that a text does not end with a newline.
export interface Line {
  kind: "same" | "removed" | "added" | "gap";
  text: string;
  before: number | undefined;
  after: number | undefined;
}

export function lines(unified: string): Line[] {
  const all: Line[] = [];
  let before = 0;
  let after = 0;
  let inHunk = false;
  // Only a line feed ends a line, as in the service.
  for (const line of unified.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    if (hunk) {
      before = Number(hunk[1]);
      after = Number(hunk[2]);
      if (inHunk || before > 1) all.push({ kind: "gap", text: "⋯", before: undefined, after: undefined });
      inHunk = true;
    } else if (inHunk && line.startsWith("-")) {
      all.push({ kind: "removed", text: line.slice(1), before: before++, after: undefined });
    } else if (inHunk && line.startsWith("+")) {
      all.push({ kind: "added", text: line.slice(1), before: undefined, after: after++ });
    } else if (inHunk && line.startsWith("\\")) {
      all.push({ kind: "gap", text: line.slice(2), before: undefined, after: undefined });
    } else if (inHunk) {
      all.push({ kind: "same", text: line.slice(1), before: before++, after: after++ });
    }
  }
  return all;
}

/** Rows of two columns. Removed lines are beside the added lines that follow them. */
export function sideBySide(all: Line[]): [Line | undefined, Line | undefined][] {
  const rows: [Line | undefined, Line | undefined][] = [];
  for (let at = 0; at < all.length; ) {
    const line = all[at];
    if (line === undefined) break;
    if (line.kind === "same" || line.kind === "gap") {
      rows.push([line, line]);
      at += 1;
      continue;
    }
    const removed: Line[] = [];
    const added: Line[] = [];
    for (; all[at]?.kind === "removed"; at += 1) removed.push(all[at] as Line);
    for (; all[at]?.kind === "added"; at += 1) added.push(all[at] as Line);
    for (let i = 0; i < Math.max(removed.length, added.length); i += 1) rows.push([removed[i], added[i]]);
  }
  return rows;
}
