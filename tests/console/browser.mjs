// Runs a browser for the tests of the console. Commands on standard input, one JSON
// object per line, each answered by one line: {"ok": VALUE} or {"error": TEXT}. The
// program exits at the end of standard input, so that it can't outlive the test.

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const TIMEOUT = 30_000;
const POLL = 20;

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({
  executablePath: process.argv[2],
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
  ],
});

let page = null;
/** Console errors, uncaught errors, failed requests, requests to other origins. */
let problems = [];

const commands = {
  /** Opens an address in a fresh context. Returns the time until the first view, in ms. */
  async open({ url, scheme = "light", width = 1280, height = 860 }) {
    await page?.context().close();
    const origin = new URL(url).origin;
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
    await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin });
    page = await context.newPage();
    page.setDefaultTimeout(TIMEOUT);
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) problems.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => problems.push(`uncaught: ${error.stack}`));
    page.on("request", (request) => {
      if (new URL(request.url()).origin !== origin) problems.push(`request to ${request.url()}`);
    });
    page.on("response", (response) => {
      if (response.status() >= 400) problems.push(`${response.status()} for ${response.url()}`);
    });
    await page.goto(url);
    await page.waitForSelector("html[data-ready]");
    return page.evaluate(() => Math.round(performance.now()));
  },

  /** Waits until an expression is true in the page. Returns the time in ms. */
  async until({ condition }) {
    const start = performance.now();
    // The page's policy forbids the evaluation of text by the page, not by the debugger.
    while (!(await page.evaluate(`Boolean(${condition})`))) {
      if (performance.now() - start > TIMEOUT) {
        const text = await page.evaluate("document.body.innerText");
        throw new Error(`not true within ${TIMEOUT} ms: ${condition}\n${text.slice(0, 2000)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL));
    }
    return Math.round(performance.now() - start);
  },

  evaluate: ({ expression }) => page.evaluate(expression),
  press: ({ keys }) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve()),
  type: ({ text }) => page.keyboard.type(text),
  click: ({ selector }) => page.click(selector),

  /** Returns the violations that axe-core finds in the current view. */
  async axe() {
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    return violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html}\n${failureSummary}`));
  },

  screenshot: async ({ path, fullPage = false }) => { await page.screenshot({ path, fullPage }); },

  /** Returns the problems since the last call. */
  problems() {
    const found = problems;
    problems = [];
    return found;
  },
};

console.log(JSON.stringify({ ok: browser.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...parameters } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ ok: (await commands[command](parameters)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
}
await browser.close();
