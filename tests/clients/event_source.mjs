// A run in the EventSource of headless Chromium: `node event_source.mjs URL CHROMIUM` prints what a page has received.
const [url, chromiumFolder] = process.argv.slice(2);
import { launch } from "./browsers.mjs";

const browser = await launch(chromiumFolder);
const post = (path, body) => fetch(`${url}${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) });
const gates = [crypto.randomUUID(), crypto.randomUUID()];
try {
  const { id } = await (await post("/runs", { agent: "support", prompt: `gates ${gates.join(" ")}` })).json();
  const page = await browser.newPage();
  await page.goto(`${url}/healthz`);
  await page.evaluate(id => {
    globalThis.seen = { events: [], opens: 0, isClosed: false };
    const source = new EventSource(`/runs/${id}/events`);
    source.onopen = () => { seen.opens++; };
    source.onmessage = ({ lastEventId, data }) => { seen.events.push([parseInt(lastEventId, 10), JSON.parse(data).type]); };
    source.onerror = () => { seen.isClosed = source.readyState === EventSource.CLOSED; };
  }, id);
  for (const [number, gate] of gates.entries()) {
    await page.waitForFunction(number => seen.events.filter(([, type]) => type === "tool_start").length > number, number);
    const { opens } = await page.evaluate(() => seen);
    await post("/cut");
    await post(`/gate/${gate}`);  // the run goes on while nobody reads
    await page.waitForFunction(opens => seen.opens > opens, opens);
  }
  // The page does not close its connection: that nothing is left to read must end it.
  await page.waitForFunction(() => seen.isClosed);
  const seen = await page.evaluate(() => seen);
  const text = await (await fetch(`${url}/runs/${id}/events`)).text();
  const expected = [...text.matchAll(/^id: (\S+)\ndata: (.*)$/gm)].map(([, id, data]) => [parseInt(id, 10), JSON.parse(data).type]);
  console.log(JSON.stringify({ ...seen, expected }));
} finally {
  await browser.close();
}
