// The service as another client sees it.

import assert from "node:assert/strict";

export class Rest {
  constructor(url, key) {
    this.url = url;
    this.headers = { "content-type": "application/json", ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) };
  }

  async call(method, path, body) {
    const signal = AbortSignal.timeout(60_000);
    const response = await fetch(`${this.url}/${path}`, { method, headers: this.headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    const reply = await response.json();
    assert.ok(response.ok, `${method} ${path}: ${JSON.stringify(reply)}`);
    return reply;
  }

  get(path) {
    return this.call("GET", path);
  }

  post(path, body) {
    return this.call("POST", path, body);
  }
}
