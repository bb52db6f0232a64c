// Keeps the history of a session of the OpenAI Agents SDK in the context service.
//
//   const session = new ContextSession("conversation-7", connect("http://127.0.0.1:7420"));
//   await run(agent, "Hello", { session });

import { randomUUID } from "node:crypto";

import type { AgentInputItem, Session } from "@openai/agents";

import type { Service } from "./service.js";
import { Transcript } from "./transcript.js";

/** A `Session`: its items are the entries of the thread `<prefix>/<sessionId>`. */
export class ContextSession implements Session {
  private readonly transcript: Transcript<AgentInputItem>;

  constructor(private readonly sessionId: string, service: Service, prefix = "openai-agents") {
    this.transcript = new Transcript(service, `${prefix}/${sessionId}`, { framework: "openai-agents", session: sessionId });
  }

  async getSessionId(): Promise<string> {
    return this.sessionId;
  }

  /** The newest items (all without a limit), oldest first. */
  getItems(limit?: number): Promise<AgentInputItem[]> {
    return this.transcript.newest(limit);
  }

  /** Adds items in batches, as `Transcript.append` does. A batch is stored completely or not at all. */
  addItems(items: AgentInputItem[]): Promise<void> {
    return this.transcript.append(items.map((item) => [randomUUID(), item]));
  }

  /** Removes the newest item and returns it. */
  popItem(): Promise<AgentInputItem | undefined> {
    return this.transcript.pop();
  }

  /** Removes all items. */
  clearSession(): Promise<void> {
    return this.transcript.clear();
  }
}
