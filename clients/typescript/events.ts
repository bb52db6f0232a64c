// Reads Server-Sent Events. Unlike EventSource, fetch can send an Authorization header.

import type { components } from "./openapi.d.ts";

/** The content of a frame: which fields it has depends on the frame. */
export type Content = Partial<components["schemas"]["Change"] & { reason: string }>;

/** An event, and the cursor with which a later stream continues after it. */
export type Event = { event: string; id: string | undefined; data: Content };

/** The events of the body of a reply. An event that was cut off is left out. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<Event, void> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true });
    const blocks = text.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const fields = new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
      const event = fields.get("event");
      if (event !== undefined) yield { event, id: fields.get("id"), data: JSON.parse(fields.get("data") ?? "{}") };
    }
  }
}
