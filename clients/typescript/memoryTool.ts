// Anthropic's memory tool (`memory_20250818`) on the context service. A file is an artifact with its path, and each
// edit makes a version. Replies and errors have the words of the file system tool in the SDK.
//
//   const memory = betaMemoryTool(new ContextMemoryTool(createClient<paths>({ baseUrl: "http://127.0.0.1:7420" })));
//   const runner = client.beta.messages.toolRunner({ tools: [memory], ... });
//
// Needs memoryText.ts, the packages @anthropic-ai/sdk and openapi-fetch, and the types from OpenAPI (docs/agents.md).

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import type { MemoryToolHandlers } from "@anthropic-ai/sdk/helpers/beta/memory";
import type { Client } from "openapi-fetch";

import { checked, inserted, isWhole, listed, replaced, ROOT, shown, stored, textOf } from "./memoryText.js";
import type { Command } from "./memoryText.js";
import type { components, paths } from "./openapi.d.ts";

type Schemas = components["schemas"];

const ATTEMPTS = 200; // An attempt fails only if the file was edited or deleted in between.

/** The handlers for `betaMemoryTool`. */
export class ContextMemoryTool implements MemoryToolHandlers {
  readonly #client: Client<paths>;

  constructor(client: Client<paths>) {
    this.#client = client;
  }

  async view(command: Command<"view">): Promise<string> {
    const path = checked(command.path);
    const file = await this.#file(path);
    if (file) return shown(textOf(file), command);
    const files = await this.#below(path);
    if (files.length === 0 && path !== ROOT) throw missing(command.path);
    const sizes = new Map<string, number>();
    const measure = async (file: Schemas["ArtifactSummary"]) => sizes.set(file.path ?? "", await this.#size(file));
    for (let at = 0; at < files.length; at += 8) await Promise.all(files.slice(at, at + 8).map(measure));
    return listed(path, sizes, command);
  }

  async create(command: Command<"create">): Promise<string> {
    const [path, taken] = [checked(command.path), `File ${command.path} already exists`];
    // A create checks only the path itself. A move also refuses a directory's path, and one that lies in a file.
    // If this process ends before the move, the artifact stays at `/creating/<uuid>`.
    const elsewhere = `/creating/${randomUUID()}`;
    const body = { path: elsewhere, ...stored(command.file_text, {}, command.path) };
    await this.#requireFree(path, taken);
    const created = done(await this.#client.POST("/v1/artifacts", { body }));
    // If this fails too, the error is still that of the move.
    const withdraw = () =>
      this.#client.DELETE("/v1/artifacts/{artifact_id}", { params: { path: { artifact_id: created.id } } }).catch(() => undefined);
    const moved = this.#client.POST("/v1/artifacts/move", { body: { path: elsewhere, to: path } });
    const reply = await moved.catch(async (error: unknown) => {
      await withdraw();
      throw error;
    });
    // The error of a proxy may be empty.
    if (reply.data === undefined) {
      await withdraw();
      await this.#requireFree(path, taken);
    }
    done(reply, { PATH_TAKEN: taken });
    return `File created successfully at: ${command.path}`;
  }

  async str_replace(command: Command<"str_replace">): Promise<string> {
    return this.#edit(command.path, (text) => replaced(text, command));
  }

  async insert(command: Command<"insert">): Promise<string> {
    return this.#edit(command.path, (text) => inserted(text, command));
  }

  async delete(command: Command<"delete">): Promise<string> {
    const path = checked(command.path);
    if (path === ROOT) throw new Error("Cannot delete the /memories directory itself");
    const { deleted_count } = done(await this.#client.POST("/v1/artifacts/delete", { body: { path } }));
    if (deleted_count === 0) throw new Error(`The path ${command.path} does not exist`);
    return `Successfully deleted ${command.path}`;
  }

  async rename(command: Command<"rename">): Promise<string> {
    const [from, to] = [checked(command.old_path), checked(command.new_path)];
    if (from === ROOT) throw new Error("Cannot rename the /memories directory itself");
    const taken = `The destination ${command.new_path} already exists`;
    const absent = `The path ${command.old_path} does not exist`;
    if (from.startsWith(`${to}/`) && (await this.#exists(to))) throw new Error(taken);
    const reply = await this.#client.POST("/v1/artifacts/move", { body: { path: from, to } });
    if (reply.error) {
      // The errors are those of the SDK's tool, which checks the destination first.
      if (!(await this.#exists(to)) && !(await this.#exists(from))) throw new Error(absent);
      await this.#requireFree(to, taken);
      if (to.startsWith(`${from}/`)) {
        throw new Error(`Cannot rename ${command.old_path} to ${command.new_path}, which lies in it`);
      }
    }
    done(reply, { PATH_TAKEN: taken, ARTIFACT_NOT_FOUND: absent });
    return `Successfully renamed ${command.old_path} to ${command.new_path}`;
  }

  /** Changes the text of a file. If another caller changed it after it was read, reads it again. */
  async #edit(given: string, change: (text: string) => [string, string]): Promise<string> {
    const path = checked(given);
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const file = await this.#file(path);
      if (!file) throw (await this.#isDirectory(path)) ? new Error(`The path ${given} is not a file.`) : missing(given);
      const [text, sentence] = change(textOf(file));
      const reply = await this.#client.PATCH("/v1/artifacts/{artifact_id}", {
        params: { path: { artifact_id: file.id }, header: { "If-Match": `"${file.version}"` } },
        body: { ...stored(text, file.metadata, given), return_content: false },
      });
      if (!["VERSION_MISMATCH", "ARTIFACT_NOT_FOUND"].includes(reply.error?.reason ?? "")) {
        done(reply);
        return sentence;
      }
      await sleep(Math.random() * Math.min(100, 2 ** attempt));
    }
    throw new Error(`The file ${given} was not edited: others changed it during each of ${ATTEMPTS} attempts.`);
  }

  async #file(path: string): Promise<Schemas["Artifact"] | undefined> {
    if (path === ROOT) return undefined;
    const reply = await this.#client.GET("/v1/artifacts/by-path", { params: { query: { path } } });
    return reply.error?.reason === "ARTIFACT_NOT_FOUND" ? undefined : done(reply);
  }

  /** The files in a directory and in those below it: all, or at most `limit`. */
  async #below(path: string, limit?: number): Promise<Schemas["ArtifactSummary"][]> {
    const files: Schemas["ArtifactSummary"][] = [];
    let cursor: string | null | undefined;
    do {
      const query = { path_prefix: `${path}/`, limit: limit ?? 50, ...(cursor ? { cursor } : {}) };
      const page = done(await this.#client.GET("/v1/artifacts", { params: { query } }));
      files.push(...page.result);
      cursor = page.next_cursor;
    } while (cursor && limit === undefined);
    return files;
  }

  async #isDirectory(path: string): Promise<boolean> {
    return path === ROOT || (await this.#below(path, 1)).length > 0;
  }

  async #size(file: Schemas["ArtifactSummary"]): Promise<number> {
    if (isWhole(file)) return Buffer.byteLength(file.content_preview);
    const read = await this.#file(file.path ?? "");
    return read ? Buffer.byteLength(textOf(read)) : 0;
  }

  async #exists(path: string): Promise<boolean> {
    return Boolean(await this.#file(path)) || this.#isDirectory(path);
  }

  /** Refuses a path that exists, or lies in a file. */
  async #requireFree(path: string, taken: string): Promise<void> {
    const parts = path.split("/");
    for (let end = 3; end < parts.length; end++) {
      const parent = parts.slice(0, end).join("/");
      if (await this.#file(parent)) throw new Error(`The path ${parent} is not a directory.`);
    }
    if (await this.#exists(path)) throw new Error(taken);
  }
}

/** The data of a reply. An error has the sentence that is given for its reason, else its own. */
function done<T>(
  reply: { data?: T; error?: Schemas["Problem"]; response: Response },
  sentences: Record<string, string> = {},
): T {
  if (reply.data !== undefined) return reply.data;
  // The error of a proxy may be empty or HTML.
  const status = `The service replied with status ${reply.response.status}.`;
  throw new Error(sentences[reply.error?.reason ?? ""] ?? reply.error?.detail ?? status);
}

function missing(path: string): Error {
  return new Error(`The path ${path} does not exist. Please provide a valid path.`);
}
