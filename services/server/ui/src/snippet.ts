// The `highlighted` text of a search: `<mark>` around the hits, everything else escaped.

export interface Piece {
  text: string;
  hit: boolean;
}

const ENTITIES: Record<string, string> = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&#39;": "'" };

/** Splits a snippet into pieces of text. Nothing in it is interpreted as HTML. */
export function pieces(snippet: string): Piece[] {
  return snippet
    .split(/(<mark>.*?<\/mark>)/s)
    .filter((part) => part !== "")
    .map((part) => ({
      hit: part.startsWith("<mark>"),
      text: part.replace(/<\/?mark>/g, "").replace(/&(?:lt|gt|amp|quot|#39);/g, (entity) => ENTITIES[entity] ?? entity),
    }));
}
