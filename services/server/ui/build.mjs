// Builds the page: src/ into dist/, which is committed and becomes part of the service.
//
//   node build.mjs [OUTPUT_DIRECTORY]
//
// Prints the size of each file, and fails when all of them together exceed the limit.

import { copyFile, mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

const LIMIT = 90_000;
const output = process.argv[2] ?? "dist";

await mkdir(output, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx" },
  outdir: output,
  bundle: true,
  minify: true,
  format: "esm",
  // These versions have everything that the page needs, such as :has and color-mix.
  target: ["chrome111", "firefox121", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
await copyFile("src/index.html", join(output, "index.html"));

let total = 0;
for (const name of ["index.html", "app.js", "app.css"]) {
  const bytes = await readFile(join(output, name));
  const zipped = gzipSync(bytes, { level: 6 }).length;
  total += zipped;
  console.log(`${name.padEnd(12)} ${String(bytes.length).padStart(7)} bytes ${String(zipped).padStart(6)} gzipped`);
}
console.log(`${"all".padEnd(12)} ${" ".repeat(13)} ${String(total).padStart(6)} gzipped, at most ${LIMIT}`);
if (total > LIMIT) {
  console.error("the page is too large");
  process.exit(1);
}
