// Starts a separate service without an embedding model, which can be stopped and filled.

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/**
 * Starts the service, with flags that may depend on its URL. `restart` stops it, calls back, and starts it again at the
 * same address.
 */
export async function ownService(program, flagsFor = () => []) {
  const folder = await mkdtemp(join(tmpdir(), "page-"));
  const address = `127.0.0.1:${await freePort()}`;
  const url = `http://${address}`;
  // A machine may have a model that was fetched, or that EMBEDDING_MODEL_PATH names.
  const env = { ...process.env, EMBEDDING_PROVIDER: "none" };
  const flags = await flagsFor(url);
  let child;
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
  const start = async () => {
    child = spawn(program, ["--listen", address, "--db-path", join(folder, "context.db"), "--socket", join(folder, "service.sock"), ...flags], { env, stdio: "ignore" });
    const deadline = Date.now() + 30_000;
    for (;;) {
      if (Date.now() > deadline) throw new Error("the service is not ready after 30 s");
      if (hasEnded()) throw new Error(`the service ended with ${child.exitCode ?? child.signalCode}`);
      const ready = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(5_000) }).then((reply) => reply.ok, () => false);
      if (ready) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  const stop = async () => {
    if (hasEnded()) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    let isLate = false;
    const killing = setTimeout(() => {
      isLate = true;
      child.kill("SIGKILL");
    }, 30_000);
    await ended;
    clearTimeout(killing);
    if (isLate) throw new Error("the service did not end within 30 s after SIGTERM");
  };
  try {
    await start();
  } catch (error) {
    child.kill("SIGKILL");
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
  return {
    url,
    async restart(whileDown) {
      await stop();
      await whileDown();
      await start();
    },
    async end() {
      try {
        await stop();
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
  };
}
