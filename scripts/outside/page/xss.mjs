// Texts that would run if any of them became HTML, a URL, a style or a script.

const RUN = "ran()";
const VECTORS = [
  `<script>${RUN}</script>`,
  `<img src=x onerror=${RUN}>`,
  `<svg onload=${RUN}>`,
  `<svg><script>${RUN}</script></svg>`,
  `<svg><animate onbegin=${RUN} attributeName=x dur=1s>`,
  `<svg><a xlink:href="javascript:${RUN}"><text y=20>x</text></a></svg>`,
  `<iframe srcdoc="<script>parent.${RUN}</script>">`,
  `<iframe src="javascript:parent.${RUN}">`,
  `<body onload=${RUN}>`,
  `<details open ontoggle=${RUN}>x</details>`,
  `<input autofocus onfocus=${RUN}>`,
  `<video><source onerror=${RUN}></video>`,
  `<audio src=x onerror=${RUN}>`,
  `<object data="javascript:${RUN}">`,
  `<embed src="javascript:${RUN}">`,
  `<a href="javascript:${RUN}">x</a>`,
  `<a href="data:text/html,<script>${RUN}</script>">x</a>`,
  `<form action="javascript:${RUN}"><button>x</button></form>`,
  `<button formaction="javascript:${RUN}">x</button>`,
  `<math><mi xlink:href="javascript:${RUN}">x</mi></math>`,
  `<style>@import 'javascript:${RUN}';</style>`,
  `<style>*{background:url(javascript:${RUN})}</style>`,
  `<div style="background:url(javascript:${RUN})">x</div>`,
  `<div style="width:expression(${RUN})">x</div>`,
  `<link rel=stylesheet href="javascript:${RUN}">`,
  `<meta http-equiv=refresh content="0;url=javascript:${RUN}">`,
  `<base href="javascript:${RUN}//">`,
  `<marquee onstart=${RUN}>x</marquee>`,
  `<select autofocus onfocus=${RUN}></select>`,
  `<template><img src=x onerror=${RUN}></template>`,
  `<noscript><img title="</noscript><img src=x onerror=${RUN}>">`,
  `<mark><img src=x onerror=${RUN}></mark>`,
  `javascript:${RUN}`,
  `javascript://%0a${RUN}`,
  `data:text/html,<script>parent.${RUN}</script>`,
  `{{constructor.constructor('${RUN}')()}}`,
  `\${${RUN}}`,
  `<%= ${RUN} %>`,
  `__proto__`,
  `<!--<img src=x onerror=${RUN}>-->`,
];
const AROUND = [
  (text) => text,
  (text) => `">${text}`,
  (text) => `'>${text}`,
  (text) => `</textarea></title></style></script>${text}`,
  (text) => `&lt;b&gt;${text}&#x3c;`,
  (text) => `\u202e\u200b${text}`,
];

export const CORPUS = AROUND.flatMap((around) => VECTORS.map(around));

/**
 * Stores all of them in entries and in the metadata of images, and the first ones in artifacts. Returns the ids of the
 * entries with images.
 */
export async function storeCorpus(rest, image) {
  const parts = Array.from({ length: Math.ceil(CORPUS.length / 60) }, (_, i) => i * 60);
  for (const from of parts) {
    const entries = CORPUS.slice(from, from + 60).map((text, i) => ({
      thread_id: text.slice(0, 256),
      source: i % 2 === 0 ? "user" : "agent",
      text: `findme ${text}`,
      tags: [text.slice(0, 128).trim()],
      metadata: { [text]: text, list: [text], deep: { [text]: { [text]: text } } },
    }));
    await rest.post("v1/contexts/batch", { entries });
  }
  for (const content of CORPUS.slice(0, 45)) {
    const made = await rest.post("v1/artifacts", { title: content.slice(0, 200), content, metadata: { [content]: content } });
    await rest.call("PATCH", `v1/artifacts/${made.id}`, { content: `${content}\n${content}` });
  }
  const svg = Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><script>parent.ran()</script><rect width="40" height="40" onload="ran()"/></svg>`).toString("base64");
  const images = [
    { data: image, mime_type: "image/png", metadata: { [CORPUS[0]]: CORPUS[1] } },
    { data: svg, mime_type: "image/svg+xml", metadata: { caption: CORPUS[2] } },
    ...parts.map((from) => ({ data: image, mime_type: "image/png", metadata: Object.fromEntries(CORPUS.slice(from, from + 60).map((text) => [text, { [text]: text }])) })),
  ];
  const stored = [];
  for (const one of images) {
    stored.push((await rest.post("v1/contexts", { thread_id: "images", source: "user", text: `findme ${one.mime_type}`, images: [one] })).context_id);
  }
  return stored;
}
