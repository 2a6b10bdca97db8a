// A chat page in headless Chromium: `node browser.mjs URL VERSION CHROMIUM SCENARIO…` prints what a person sees.
const [url, version, chromiumFolder, ...wanted] = process.argv.slice(2);
import { launch } from "./browsers.mjs";

const browser = await launch(chromiumFolder);
const problems = [], pages = [];

/** Once a page that was loaded knows whether an answer is under way: else that stream may show the next message too, beside its own. */
const joined = page => new Promise(resolve => {
  const asked = new Set();
  const answered = request => { if (asked.delete(request) && !asked.size) resolve(); };
  page.on("request", request => { if (request.url().endsWith("/stream")) asked.add(request); });
  page.on("response", response => answered(response.request()));
  page.on("requestfailed", answered);
});
const open = async (id, context) => {
  const page = await (context ?? await browser.newContext()).newPage();
  pages.push(page);
  page.setDefaultTimeout(20_000);
  page.on("pageerror", error => problems.push(String(error)));
  const hasJoined = joined(page);
  await page.goto(`${url}/page${version}#${id}`);
  await page.waitForSelector("main");
  await hasJoined;
  return page;
};
const say = async (page, text) => { await page.fill("input", text); await page.click('button:text-is("Send")'); };
const settled = page => page.waitForSelector('main[data-status="ready"]');
const sees = (page, text) => page.waitForSelector(`article p:text-is(${JSON.stringify(text)})`);
const openGate = name => fetch(`${url}/gate/${name}`, { method: "POST" });
const thread = async id => (await fetch(`${url}/threads/${id}`)).json();
/** What is on the page, as text. */
const shown = page => page.$$eval("article", articles => articles.map(article => article.innerText.replace(/\s+/g, " ").trim()));
const states = page => page.$$eval("section", sections => sections.map(({ dataset }) => [dataset.tool, dataset.state]));

const scenarios = {
  async send(id) {
    const page = await open(id);
    await say(page, "three steps");
    await sees(page, "Rome and Oslo are clear.");
    await settled(page);
    const result = { shown: await shown(page), states: await states(page) };
    await page.click("text=Answer again");
    await sees(page, "Rome and Oslo are clear.");
    await settled(page);
    return { ...result, again: await shown(page), runs: (await thread(id)).runs.length };
  },

  async approve(id) {
    const page = await open(id);
    await say(page, "pay 7");
    await page.click("text=Approve");
    await sees(page, "It is done.");
    const approved = await states(page);
    await say(page, "pay 7");
    await page.click("text=Decline");
    await page.waitForFunction(() => document.querySelectorAll("article").length === 4 && document.body.innerText.match(/It is done/g).length === 2);
    return { approved, states: await states(page) };
  },

  async approveAfterReload(id) {
    const page = await open(id);
    await say(page, "pay 7");
    await page.waitForSelector("text=Approve");
    await page.reload();
    await page.click("text=Approve");
    await sees(page, "It is done.");
    return { shown: await shown(page), states: await states(page) };
  },

  async clientTool(id) {
    const page = await open(id);
    await say(page, "time_zone please");
    await page.waitForSelector("article p:text('You are in')");
    return { shown: await shown(page), states: await states(page) };
  },

  async stop(id) {
    const page = await open(id);
    await say(page, `hold ${id}`);
    await page.waitForSelector('section[data-tool="hold"]');
    await page.click('button:text-is("Stop")');
    await settled(page);
    await say(page, "still there?");
    await sees(page, "You said: still there?");
    return { shown: await shown(page), tools: await states(page), states: (await thread(id)).runs.map(run => run.state) };
  },

  async reload(id) {
    const page = await open(id);
    await say(page, `hold ${id}`);
    await page.waitForSelector('section[data-tool="hold"]');
    await page.reload();
    await page.waitForSelector('section[data-tool="hold"]');
    const during = await shown(page);
    await openGate(id);
    await sees(page, "The gate is open.");
    await settled(page);
    const after = await shown(page);
    await page.reload();
    await sees(page, "The gate is open.");
    return { during, after, later: await shown(page), runs: (await thread(id)).runs.length };
  },

  async twoTabs(id) {
    const context = await browser.newContext();
    const first = await open(id, context);
    await say(first, `hold ${id}`);
    await first.waitForSelector('section[data-tool="hold"]');
    const second = await open(id, context);
    await second.waitForSelector('section[data-tool="hold"]');
    await openGate(id);
    for (const page of [first, second]) { await sees(page, "The gate is open."); await settled(page); }
    return { first: await shown(first), second: await shown(second) };
  },

  async cut(id) {
    const page = await open(id);
    await say(page, `hold ${id}`);
    await page.waitForSelector('section[data-tool="hold"]');
    await fetch(`${url}/cut`, { method: "POST" });
    await page.waitForSelector("text=Reconnect");
    await page.click("text=Reconnect");
    await page.waitForSelector('button:text-is("Stop")');
    await openGate(id);
    await sees(page, "The gate is open.");
    await settled(page);
    return { shown: await shown(page) };
  },

  async cutAtTheEnd(id) {
    const page = await open(id);
    await say(page, `hold ${id}`);
    await page.waitForSelector('section[data-tool="hold"]');
    await fetch(`${url}/cut`, { method: "POST" });
    await page.waitForSelector("text=Reconnect");
    await openGate(id);
    while ((await thread(id)).active) await new Promise(resolve => setTimeout(resolve, 10));
    await page.click("text=Reconnect");
    await sees(page, "The gate is open.");
    return { shown: await shown(page) };
  },
};

const results = {};
try {
  for (const name of wanted.length ? wanted : Object.keys(scenarios)) {
    results[name] = await scenarios[name](`${name}-${crypto.randomUUID()}`).catch(async error => (
      { error: String(error), pages: await Promise.all(pages.map(page => page.innerText("body"))) }));
    await Promise.all(pages.splice(0).map(page => page.close()));
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify({ ...results, problems }));
