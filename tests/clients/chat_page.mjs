// The page in the box in headless Chromium: `node chat_page.mjs URL CHROMIUM TOKEN_URL TOKEN` prints what a person sees.
const [url, chromiumFolder, tokenUrl, token, ...wanted] = process.argv.slice(2);
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: `${chromiumFolder}/chromium`, args: ["--no-sandbox", "--disable-background-networking"],
  env: { ...process.env, LD_LIBRARY_PATH: `${chromiumFolder}/lib`, FONTCONFIG_PATH: chromiumFolder },
});
const problems = [], elsewhere = [], pages = [];

async function open(context, address = url) {
  const page = await (context ?? await browser.newContext()).newPage();
  pages.push(page);
  page.setDefaultTimeout(20_000);
  page.on("pageerror", error => problems.push(String(error)));
  page.on("console", message => { if (/Content Security Policy/.test(message.text())) problems.push(message.text()); });
  page.on("request", request => { if (!request.url().startsWith(new URL(address).origin)) elsewhere.push(request.url()); });
  await page.goto(address);
  return page;
}
const say = async (page, text) => { await page.fill("#prompt", text); await page.press("#prompt", "Enter"); };
const over = (page, count = 1) => page.waitForFunction(count => document.querySelectorAll(".exchange[data-state=over]").length === count, count);
const press = (page, label) => page.click(`button:text-is("${label}")`);
const runs = (page, state = "running") => page.waitForSelector(`.call[data-state=${state}]`);
const openGate = name => fetch(`${url}gate/${name}`, { method: "POST" });
const cut = () => fetch(`${url}cut`, { method: "POST" });
const thread = async page => (await fetch(`${url}threads/${new URL(page.url()).hash.slice(1)}`)).json();
/** What is on the page, without times. */
const shown = page => page.$$eval(".user p, div.text, .call h3, .call > header .state, .fields > div, .result, .note", elements =>
  elements.map(element => (element.children.length ? [...element.children] : [element]).map(part => part.textContent).join(" ").replace(/\s+/g, " ").trim()));
const announced = page => page.textContent("#announcer");

const scenarios = {
  async send() {
    const page = await open();
    await say(page, "weather please");
    await over(page);
    const tools = await page.$$eval(".call", calls => calls.map(({ dataset, innerText }) => [dataset.state, /\bearly\b/.test(innerText)]));
    await page.click(".timeline summary");
    await page.waitForSelector(".timeline th[scope=row]"); // it is drawn after the click
    const rows = await page.$$eval(".timeline th[scope=row]", headers => headers.map(header => header.innerText));
    return { shown: await shown(page), tools, rows, saved: await page.textContent(".saved"), summary: await page.textContent(".timeline summary"), announced: await announced(page), hash: new URL(page.url()).hash.length };
  },

  async growing() {
    const page = await open();
    return page.evaluate(() => {
      const list = el("dl"), fields = new GrowingFields(list), seen = [];
      const raw = JSON.stringify({ city: 'Ro"me\n€😀', list: [1, { a: "x,y}\"" }], flag: true, empty: {}, number: -1.5e3, text: "\u0007end" });
      for (const character of raw.replace("€", "\\u20ac")) { fields.feed(character); seen.push(list.textContent); }
      const prefixes = seen.every((text, index) => !index || text.startsWith(seen[index - 1]));
      return { final: [...list.children].map(row => [...row.children].map(child => child.textContent)), prefixes, half: seen[12] };
    });
  },

  async earlyTool() {
    const page = await open();
    return page.evaluate(() => {
      const timeline = new Timeline(), call = { id: "a", call_id: "a", name: "weather", block: 1 };
      const events = [["step_start", 0], ["tool_call_start", 1], ["tool_start", 2], ["tool_call", 3], ["step_end", 4], ["tool_end", 7], ["done", 9]];
      for (const [type, at] of events) timeline.add({ type, step: 1, is_early: true, ...call }, at);
      return { spans: timeline.calls.get("a").spans.map(({ kind, begin, end }) => [kind, begin, end]) };
    });
  },

  async toolTimes() {
    const page = await open();
    return page.evaluate(() => {
      const timeline = new Timeline();
      const look = { id: "a", call_id: "a", name: "look", block: 1, order: "read", is_early: true };
      const write = { id: "b", call_id: "b", name: "write", block: 2, order: "effect", is_early: false };
      const events = [
        [{ type: "step_start", step: 1 }, 0], [{ type: "tool_start", ...look }, 2], [{ type: "tool_call", ...look }, 5.9], [{ type: "step_end" }, 6],
        [{ type: "tool_end", ...look, ending: "done", started: 2.25, seconds: 3 }, 6], [{ type: "tool_start", ...write }, 6],
        [{ type: "tool_end", ...write, ending: "done", started: 99, seconds: 1 }, 7.5], [{ type: "done" }, 8],
      ];
      for (const [event, at] of events) timeline.add(event, at);
      const card = new CallCard("look", () => null);
      card.start(look);
      card.end({ ending: "done", result: { text: "seen" }, seconds: 0.012 });
      return { spans: ["a", "b"].map(id => timeline.calls.get(id).spans.map(({ kind, begin, end }) => [kind, begin, end])), saved: timeline.saved, time: card.time.textContent };
    });
  },

  async approve() {
    const page = await open();
    await say(page, "refund it");
    await page.waitForSelector(".ask");
    const request = await page.innerText(".call");
    await page.reload();
    await press(page, "Approve");
    await over(page);
    await say(page, "refund again");
    await page.fill(".ask input", "too much");
    await press(page, "Decline");
    await over(page, 2);
    return { request, states: await page.$$eval(".call", calls => calls.map(call => call.dataset.state)), shown: await shown(page) };
  },

  async preview() {
    const page = await open();
    await say(page, "edit it");
    await page.waitForSelector(".ask");
    const lines = await page.$$eval(".difference dd span", spans => spans.map(({ className, textContent }) => [className, textContent.trimEnd()]));
    await press(page, "Approve");
    await over(page);
    return { lines, shown: await shown(page) };
  },

  async answerQuestions() {
    const page = await open();
    await say(page, "book a seat");
    await page.fill(".ask input[type=number]", "4");
    await page.check(".ask input[type=checkbox]");
    await press(page, "Answer");
    await over(page);
    await say(page, "locate me");
    await page.fill(".ask textarea", "Bergen");
    await press(page, "Send the result");
    await over(page, 2);
    return { shown: await shown(page) };
  },

  async stop() {
    const page = await open();
    await say(page, "hold stop");
    await runs(page);
    await say(page, "and hurry");
    await page.waitForSelector(".answer .user");
    await page.press("#prompt", "Escape");
    await over(page);
    await say(page, "still there?");
    await over(page, 2);
    return { shown: await shown(page), states: (await thread(page)).runs.map(run => run.state) };
  },

  async reload() {
    const page = await open();
    await say(page, "hold reload");
    await runs(page);
    const during = await shown(page);
    await page.reload();
    await runs(page);
    const after = await shown(page);
    await openGate("reload");
    await over(page);
    return { during, after, end: await shown(page), runs: (await thread(page)).runs.length };
  },

  async reconnect() {
    const page = await open();
    await say(page, "hold cut");
    await runs(page);
    await cut();
    await page.waitForSelector("#state[data-state=reconnecting]", { state: "attached" });
    await cut();
    await openGate("cut");
    await over(page);
    return { shown: await shown(page) };
  },

  async twoTabs() {
    const context = await browser.newContext();
    const first = await open(context);
    await say(first, "hold tabs");
    await runs(first);
    const second = await open(context, first.url());
    await runs(second);
    await openGate("tabs");
    await Promise.all([over(first), over(second)]);
    await say(second, "hello");
    await Promise.all([over(first, 2), over(second, 2)]);
    return { first: await shown(first), second: await shown(second) };
  },

  async nested() {
    const page = await open();
    await say(page, "research");
    await over(page);
    return { shown: await shown(page), inside: await page.$$eval(".inner .call h3", titles => titles.map(title => title.innerText)) };
  },

  async errors() {
    const page = await open();
    await say(page, "broken");
    await over(page);
    await say(page, "retry once");
    await over(page, 2);
    await say(page, "fail");
    await over(page, 3);
    return { shown: await shown(page) };
  },

  async html() {
    const page = await open();
    await say(page, "html");
    await over(page);
    return { title: await page.title(), images: await page.$$eval("main img, main script", found => found.length), shown: await shown(page) };
  },

  async agents() {
    const page = await open();
    await page.waitForSelector("#agents option[value=echo]", { state: "attached" });
    await page.selectOption("#agents", "echo");
    await say(page, "hi");
    await over(page);
    await press(page, "New chat");
    await page.waitForSelector("#empty:not([hidden])");
    await page.click("#recent summary");
    await page.click("#recent-list a");
    await over(page);
    return { who: await page.innerText(".who"), shown: await shown(page) };
  },

  async long() {
    const page = await open();
    await page.evaluate(() => {
      window.slow = 0;
      new PerformanceObserver(list => { for (const entry of list.getEntries()) window.slow = Math.max(window.slow, entry.duration); }).observe({ type: "longtask" });
    });
    await say(page, "long 5000");
    await over(page);
    const last = await page.innerText(".text p:last-child");
    return { slowest: await page.evaluate(() => window.slow), characters: await page.evaluate(() => document.querySelector("div.text").textContent.length), last: last.trim().slice(-27) };
  },

  async signIn() {
    const page = await open(undefined, tokenUrl);
    await page.waitForSelector("#sign-in[open]");
    await page.fill("#token", "wrong");
    await press(page, "Sign in");
    await page.waitForSelector("#sign-in-problem:not([hidden])");
    const refused = await page.innerText("#sign-in-problem");
    await page.fill("#token", token);
    await press(page, "Sign in");
    await page.waitForSelector("#sign-in:not([open])", { state: "attached" });
    await say(page, "hi");
    await over(page);
    return { refused, shown: await shown(page), kept: await page.evaluate(() => JSON.stringify(localStorage) + document.cookie) };
  },

  async keyboard() {
    const page = await open();
    await say(page, "refund it");
    await page.waitForSelector(".ask");
    await page.focus(".skip");
    const order = [];
    for (let index = 0; index < 14; index++) {
      order.push(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent || document.activeElement.placeholder));
      await page.keyboard.press("Tab");
    }
    await page.focus(".ask button.quiet");
    await page.keyboard.press("Enter");
    await over(page);
    return { order, announced: await announced(page), states: await page.$$eval(".call", calls => calls.map(call => call.dataset.state)) };
  },

  async names() {
    const page = await open();
    await say(page, "book a seat");
    await page.waitForSelector(".ask");
    const unnamed = await page.$$eval("button, input, select, textarea, progress, pre[tabindex], summary, section.call, article, nav, [role=log]", elements =>
      elements.filter(element => element.checkVisibility()).filter(element => {
        const label = element.labels?.[0]?.textContent ?? "";
        return !(element.getAttribute("aria-label") || label.trim() || (!("value" in element && element.tagName !== "BUTTON") && element.textContent.trim()));
      }).map(element => element.outerHTML.slice(0, 100)));
    const levels = await page.$$eval("h1, h2, h3", headings => headings.filter(heading => heading.checkVisibility()).map(heading => Number(heading.tagName[1])));
    const ids = await page.$$eval("[id]", elements => elements.map(element => element.id));
    return { unnamed, levels, doubleIds: ids.filter((id, index) => ids.indexOf(id) !== index), language: await page.getAttribute("html", "lang") };
  },

  async contrast() {
    const found = { light: [], dark: [] };
    for (const [colorScheme, prompt] of [["light", "refund it"], ["light", "edit it"], ["dark", "refund it"], ["dark", "edit it"]]) {
      const page = await open(await browser.newContext({ colorScheme }));
      await say(page, prompt);
      await page.waitForSelector(".ask");
      found[colorScheme].push(...await page.evaluate(() => {
        const rgb = text => { const c = document.createElement("canvas").getContext("2d"); c.fillStyle = text; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
        const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
        const behind = element => { for (let at = element; at; at = at.parentElement) { const color = rgb(getComputedStyle(at).backgroundColor); if (color[3] === 255) return color; } return [255, 255, 255]; };
        const weak = [];
        for (const element of document.querySelectorAll("body *")) {
          if (!element.checkVisibility() || ![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
          const [a, b] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
          const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
          if (ratio < 4.5) weak.push([element.textContent.slice(0, 30), ratio]);
        }
        return weak;
      }));
    }
    return found;
  },

  async narrow() {
    const wide = [];
    for (const width of [1280, 400, 320]) {
      const page = await open(await browser.newContext({ viewport: { width, height: 700 } }));
      await say(page, "weather");
      await over(page);
      await page.click(".timeline summary");
      await say(page, "refund it");
      await page.waitForSelector(".ask");
      if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) wide.push(width);
    }
    return { wide };
  },
};

const results = {};
try {
  for (const name of wanted.length ? wanted : Object.keys(scenarios)) {
    results[name] = await scenarios[name]().catch(async error => (
      { error: String(error), pages: await Promise.all(pages.map(page => page.innerText("body"))) }));
    await Promise.all(pages.splice(0).map(page => page.close()));
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify({ ...results, problems, elsewhere }));
