// Stores an entry over gRPC. The message is encoded by hand, so that no package is needed.

import assert from "node:assert/strict";
import http2 from "node:http2";

/** StoreContextRequest has thread_id = 1, source = 2 and text = 3. */
export async function storeByGrpc(url, { thread_id, source, text }) {
  const fields = [thread_id, source, text].map((value, i) => {
    const bytes = Buffer.from(value);
    assert.ok(bytes.length < 128, "the length is one byte");
    return Buffer.concat([Buffer.from([((i + 1) << 3) | 2, bytes.length]), bytes]);
  });
  const message = Buffer.concat(fields);
  const frame = Buffer.alloc(5);
  frame.writeUInt32BE(message.length, 1);
  const client = http2.connect(url);
  try {
    await new Promise((resolve, reject) => {
      client.on("error", reject);
      const call = client.request({ ":method": "POST", ":path": "/context.v1.ContextService/StoreContext", "content-type": "application/grpc", te: "trailers" });
      const ended = (headers) => headers["grpc-status"] !== undefined && (headers["grpc-status"] === "0" ? resolve() : reject(new Error(`gRPC status ${headers["grpc-status"]}: ${headers["grpc-message"]}`)));
      call.on("response", ended);
      call.on("trailers", ended);
      call.on("error", reject);
      call.on("close", () => reject(new Error("the call ended without a gRPC status")));
      call.setTimeout(30_000, () => reject(new Error("no gRPC status within 30 s")));
      call.resume();
      call.end(Buffer.concat([frame, message]));
    });
  } finally {
    client.destroy();
  }
}
