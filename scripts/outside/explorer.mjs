// Presses Execute in the API explorer, as a person would, and checks where the
// request went and what came back.
//
//   node explorer.mjs CHROMIUM SERVICE_URL SCREENSHOT

import assert from "node:assert/strict";
import http from "node:http";

import { chromium } from "playwright-core";

const [executablePath, service, screenshot] = process.argv.slice(2);
const SECONDS = 1000;

// A proxy that serves the service under /memory, as a company's web server would.
const PREFIX = "/memory";
const proxy = http.createServer((request, response) => {
  if (!request.url.startsWith(`${PREFIX}/`)) {
    response.writeHead(404).end("outside the prefix");
    return;
  }
  const { hostname, port } = new URL(service);
  const options = { hostname, port, method: request.method, path: request.url.slice(PREFIX.length), headers: request.headers };
  const forwarded = http.request(options, (reply) => {
    response.writeHead(reply.statusCode, reply.headers);
    reply.pipe(response);
  });
  forwarded.on("error", (error) => response.destroy(error));
  request.pipe(forwarded);
});
await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));

// Without its sandbox, because root may not use it. Only pages of our own service are opened.
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

// Executes an operation and returns the URL that the explorer shows, the status and the body.
async function execute(page, operation) {
  const block = page.locator(`#operations-${operation}`);
  await block.locator(".opblock-summary-control").click();
  await block.locator(".execute").click();
  const reply = block.locator(".live-responses-table .response");
  return {
    url: await block.locator(".request-url pre").innerText(),
    status: Number.parseInt(await reply.locator(".response-col_status").innerText(), 10),
    body: await reply.locator(".response-col_description").innerText(),
  };
}

// Opens the explorer at this address and executes a write and a read there.
async function explore(base, screenshotPath) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 1800 } });
  page.setDefaultTimeout(30 * SECONDS);
  const problems = [];
  page.on("pageerror", (error) => problems.push(`error in the page: ${error.message}`));
  page.on("console", (message) => message.type() === "error" && problems.push(`console: ${message.text()}`));
  page.on("request", (request) => {
    const { protocol, href } = new URL(request.url());
    if (protocol.startsWith("http") && !href.startsWith(`${base}/`)) problems.push(`a request to ${href}`);
  });
  // The address without the last slash is what people type.
  await page.goto(`${base}/docs`);

  const stored = await execute(page, "contexts-store_context");
  assert.equal(stored.url, `${base}/v1/contexts`);
  assert.ok([200, 201].includes(stored.status), JSON.stringify(stored));
  const threads = await execute(page, "overview-list_threads");
  assert.ok(threads.url.startsWith(`${base}/v1/threads`), threads.url);
  assert.equal(threads.status, 200);
  assert.ok(threads.body.includes("project-123"), threads.body);

  if (screenshotPath) {
    await page.locator("#operations-overview-list_threads .live-responses-table").scrollIntoViewIfNeeded();
    await page.screenshot({ path: screenshotPath });
  }
  assert.deepEqual(problems, []);
  await page.close();
  console.log(`explorer: Execute works at ${base}/docs`);
}

try {
  await explore(service, screenshot);
  await explore(service.replace("127.0.0.1", "localhost"));
  await explore(`http://127.0.0.1:${proxy.address().port}${PREFIX}`);
} finally {
  await browser.close();
  proxy.close();
  proxy.closeAllConnections();
}
