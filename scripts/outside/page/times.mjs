// How long the page takes: medians of ten.

import { performance as clock } from "node:perf_hooks";

const ROUNDS = 10;

const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];

/** The heap of the tab after a garbage collection, in MiB. */
export async function heapOf(page) {
  const devtools = await page.context().newCDPSession(page);
  return async () => {
    await devtools.send("HeapProfiler.collectGarbage");
    return (await devtools.send("Runtime.getHeapUsage")).usedSize / 1024 ** 2;
  };
}

/** From the navigation to the first paint and to the first entries, in ms. */
export async function firstPaint(page, url) {
  const paints = [];
  const entries = [];
  for (let i = 0; i < ROUNDS; i += 1) {
    await page.goto("about:blank");
    const began = clock.now();
    await page.goto(`${url}/`);
    await page.locator(".entry").first().waitFor();
    entries.push(clock.now() - began);
    paints.push(await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => resolve(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? performance.now())))));
  }
  return { paint: median(paints), entries: median(entries) };
}

/**
 * From a change of the URL to the frame after the view has its data, in ms. `views` has, for each view, the selector of
 * an element that appears with its data.
 */
export async function viewChanges(page, url, views) {
  const medians = {};
  for (const [view, selector] of Object.entries(views)) {
    const times = [];
    for (let i = 0; i < ROUNDS; i += 1) {
      await page.goto(`${url}/#/${view === "connect" ? "health" : "connect"}`);
      await page.locator(view === "connect" ? ".card" : ".code").first().waitFor();
      times.push(await page.evaluate(timeOfView, [`#/${view}`, selector]));
    }
    medians[view] = median(times);
  }
  return medians;
}

/** Runs in the page: goes to a view, or presses a button, and waits for the frame after the element appears. */
export function timeOfView([target, selector]) {
  return new Promise((resolve, reject) => {
    // The script of a page has no time limit of its own.
    const late = setTimeout(() => reject(new Error(`${target}: no ${selector} within 30 s`)), 30_000);
    performance.mark("click");
    const check = () => {
      if (!document.querySelector(selector)) return;
      clearTimeout(late);
      observer.disconnect();
      requestAnimationFrame(() => setTimeout(() => resolve(performance.measure("view", "click").duration)));
    };
    const observer = new MutationObserver(check);
    observer.observe(document.body, { childList: true, subtree: true });
    if (target.startsWith("#")) location.hash = target;
    else [...document.querySelectorAll("button")].find(({ textContent }) => textContent.startsWith(target)).click();
  });
}
