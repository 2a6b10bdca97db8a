// The inspector in headless Chromium: `node inspector.mjs URL CHROMIUM SCENARIO [FOLDER]` prints what a person sees.
const [url, chromiumFolder, wanted, folder] = process.argv.slice(2);
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: `${chromiumFolder}/chromium`, args: ["--no-sandbox", "--disable-background-networking"],
  env: { ...process.env, LD_LIBRARY_PATH: `${chromiumFolder}/lib`, FONTCONFIG_PATH: chromiumFolder },
});
const problems = [], requests = [];

const open = async (id, options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options.context });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("pageerror", error => problems.push(String(error)));
  page.on("request", request => requests.push(request.url()));
  if (options.isTraced) await browser.startTracing(page, { categories: ["toplevel"] });
  await page.goto(`${url}/inspect#${id}`);
  await page.waitForSelector(".row");
  return page;
};
/** How long tasks have kept the thread of the page, in milliseconds of its CPU time: others may use the machine too. */
const taskTimes = async () => {
  const { traceEvents } = JSON.parse(await browser.stopTracing());
  const isMain = new Set(traceEvents.filter(event => event.name === "thread_name" && event.args.name === "CrRendererMain").map(event => `${event.pid} ${event.tid}`));
  const tasks = traceEvents.filter(event => event.ph === "X" && event.name.endsWith("RunTask") && isMain.has(`${event.pid} ${event.tid}`));
  return tasks.map(task => (task.tdur ?? task.dur) / 1000).sort((one, other) => other - one);
};
const facts = page => page.textContent("#facts");
const rows = page => page.$$eval(".row", elements => elements.map(element => ({
  top: element.offsetTop, frame: element.querySelector(".frame").textContent, events: element.querySelector(".events").textContent,
  sent: element.querySelector(".sent").textContent, isOdd: element.classList.contains("odd"), isSelected: element.ariaSelected === "true",
})));
const lanes = page => page.$$eval("#waterfall .name", elements => elements.map(element => element.textContent));

const scenarios = {
  async newest() {
    const page = await open("");
    return { current: await page.$$eval("#exchanges button", buttons => buttons.map(button => button.ariaCurrent === "true")) };
  },
  async long() {
    const page = await open("long", { isTraced: true });
    await page.waitForFunction(() => document.querySelector("#facts").textContent.includes("5,000 frames"));
    const drawn = (await rows(page)).length;
    for (let step = 0; step < 60; step += 1) {
      await page.evaluate(place => { document.querySelector("#list").scrollTop = place; }, step * 2200);
      await page.evaluate(() => new Promise(resolve => requestAnimationFrame(resolve)));
    }
    await page.focus("#list");
    await page.keyboard.press("End");
    const last = (await rows(page)).find(row => row.isSelected);
    await page.keyboard.press("Home");
    const tasks = await taskTimes();
    return { facts: await facts(page), drawn, last, count: tasks.length, tasks: tasks.slice(0, 5) };
  },

  async odd() {
    const page = await open("odd");
    await page.waitForSelector("#findings button");
    const result = { rows: await rows(page), lanes: await lanes(page), findings: await page.$$eval("#findings button", buttons => buttons.map(button => button.textContent)) };
    await page.focus("#list");
    await page.keyboard.press("o");
    result.detail = await page.textContent("#detail");
    await page.keyboard.press("r");
    result.request = await page.textContent("#detail");
    await page.keyboard.press("Escape");
    result.isClosed = await page.isHidden("#detail");
    await page.keyboard.press("/");
    await page.keyboard.type("finish_reason\": \"stop");
    await page.waitForFunction(() => document.querySelectorAll(".row").length === 1);
    result.filtered = await rows(page);
    return result;
  },

  async copies() {
    const page = await open("odd", { context: { permissions: ["clipboard-read", "clipboard-write"] } });
    await page.click("#copy");
    await page.waitForSelector("#toast:not([hidden])");
    const vector = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
    return { vector, name: download.suggestedFilename() };
  },

  async live() {
    const page = await open("live");
    const begin = await rows(page);
    await fetch(`${url}/go`, { method: "POST" });
    await page.waitForFunction(() => document.querySelector("#rows").textContent.includes("second"));
    const during = { rows: await rows(page), isLive: await page.isVisible("#live") };
    await fetch(`${url}/go`, { method: "POST" });
    await page.waitForFunction(() => document.querySelector("#live").hidden);
    return { begin: begin.length, during, after: await rows(page), lanes: await lanes(page) };
  },

  async pictures() {
    for (const [width, height] of [[1280, 800], [400, 800]])
      for (const colorScheme of ["light", "dark"])
        for (const id of ["odd", "healed"]) {
          const page = await open(id, { context: { viewport: { width, height }, colorScheme } });
          await page.waitForTimeout(300);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (overflow > 0) problems.push(`${id} is ${overflow} px too wide at ${width}`);
          if (folder) await page.screenshot({ path: `${folder}/${id}-${width}-${colorScheme}.png` });
          await page.context().close();
        }
    return {};
  },
};

const seen = await scenarios[wanted]();
await browser.close();
console.log(JSON.stringify({ ...seen, problems, outside: requests.filter(request => !request.startsWith(url)) }));
