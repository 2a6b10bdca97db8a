// The page of an operator in headless Chromium: `node admin_page.mjs URL CHROMIUM TOKEN FOLDER` prints what a person sees.
const [url, chromiumFolder, token, folder] = process.argv.slice(2);
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: `${chromiumFolder}/chromium`, args: ["--no-sandbox", "--disable-background-networking"],
  env: { ...process.env, LD_LIBRARY_PATH: `${chromiumFolder}/lib`, FONTCONFIG_PATH: chromiumFolder },
});
const problems = [], elsewhere = [], pages = [];

async function open(options = {}) {
  const page = await (await browser.newContext(options)).newPage();
  pages.push(page);
  page.setDefaultTimeout(20_000);
  page.on("pageerror", error => problems.push(String(error)));
  page.on("console", message => { if (/Content Security Policy/.test(message.text())) problems.push(message.text()); });
  page.on("request", request => { if (!request.url().startsWith(new URL(url).origin)) elsewhere.push(request.url()); });
  await page.goto(`${url}/admin`);
  return page;
}

async function signedIn(options) {
  const page = await open(options);
  await page.fill("#token", token);
  await page.press("#token", "Enter");
  await page.waitForSelector("#list tbody tr td[data-label=Run]");
  return page;
}

const ids = page => page.$$eval("#list td[data-label=Run]", cells => cells.map(cell => cell.innerText.trim()).sort());
const counts = page => page.$$eval("#states button", buttons => Object.fromEntries(buttons.map(button => [button.dataset.state, Number(button.querySelector("strong").textContent)])));
const choose = async (page, state) => {
  await Promise.all([page.waitForResponse(/api\/runs\?/), page.click(`#states button[data-state=${state}]`)]);
};
const openRun = async (page, id) => { await page.click(`button.link:text-is("${id}")`); await page.waitForSelector("#timeline li"); };

const scenarios = {
  async signIn() {
    const page = await open();
    await page.fill("#token", "not the token, but long");
    await page.press("#token", "Enter");
    await page.waitForSelector("#sign-in-problem:not([hidden])");
    const refused = await page.textContent("#sign-in-problem"), empty = await ids(page);
    await page.fill("#token", token);
    await page.press("#token", "Enter");
    await page.waitForSelector("#list tbody tr td[data-label=Run]");
    const kept = await page.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage));
    await page.reload();
    await page.waitForSelector("#list tbody tr td[data-label=Run]"); // the cookie is enough
    await page.click("#sign-out");
    await page.waitForSelector("#sign-in[open]");
    return { refused, empty, kept };
  },

  async look() {
    const page = await signedIn();
    await page.waitForSelector("#workers td[data-label=Process]");
    const all = await ids(page);
    await page.fill("#tenant", "acme");
    await Promise.all([page.waitForResponse(/api\/runs\?/), page.press("#tenant", "Enter")]);
    await page.waitForFunction(() => document.querySelectorAll("#list td[data-label=Run]").length === 5);
    await page.screenshot({ path: `${folder}/admin-page.png` });
    await page.fill("#tenant", "");
    await choose(page, "parked");
    await page.waitForFunction(() => document.querySelectorAll("#list td[data-label=Run]").length === 2);
    const parked = await ids(page);
    await page.fill("#tenant", "nobody");
    await page.press("#tenant", "Enter");
    await page.waitForSelector("#list td[colspan]");
    return {
      all, parked, counts: await counts(page), none: await page.innerText("#list tbody"),
      workers: await page.$$eval("#workers td[data-label=Kind]", cells => cells.map(cell => cell.innerText)),
      facts: await page.innerText("#facts"),
    };
  },

  async timeline() {
    const page = await signedIn();
    await openRun(page, "ended");
    return {
      types: await page.$$eval("#timeline .type", all => all.map(each => each.textContent)),
      actions: await page.$$eval("#run .actions button", all => all.filter(each => each.checkVisibility()).map(each => each.id)),
      times: await page.$$eval("#timeline .time", all => all.every(each => /^\+\d/.test(each.textContent))),
    };
  },

  async html() {
    const page = await signedIn();
    await openRun(page, "odd");
    return { title: await page.title(), images: await page.$$eval("img", all => all.length), tenant: await page.innerText("#run-facts") };
  },

  async retryAndCancel() {
    const page = await signedIn();
    await openRun(page, "parked");
    await page.click("#retry");
    await page.click("#confirm button[value=no]");
    const kept = await page.innerText("#run-title .badge");
    await page.click("#retry");
    await page.click("#confirm-yes");
    await page.waitForFunction(() => document.querySelector("#run-title .badge").textContent !== "parked");
    const retried = await page.innerText("#run-title .badge");
    await page.click("#close");
    await openRun(page, "waiting");
    await page.click("#cancel");
    await page.click("#confirm-yes");
    await page.waitForFunction(() => document.querySelector("#run-title .badge").textContent === "over");
    return { kept, retried, cancelled: await page.innerText("#run-title .badge"), cancelShown: await page.isVisible("#cancel") };
  },

  async appearance() {
    const wide = [], weak = [], unnamed = [];
    for (const width of [1280, 400, 320]) {
      for (const colorScheme of ["light", "dark"]) {
        const page = await signedIn({ viewport: { width, height: 900 }, colorScheme });
        await openRun(page, "ended");
        await page.screenshot({ path: `${folder}/admin-${width}-${colorScheme}.png`, fullPage: true });
        if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) wide.push(width);
        weak.push(...await page.evaluate(() => {
          const rgb = text => { const c = document.createElement("canvas").getContext("2d"); c.fillStyle = text; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
          const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
          const behind = element => { for (let at = element; at; at = at.parentElement) { const color = rgb(getComputedStyle(at).backgroundColor); if (color[3] === 255) return color; } return [255, 255, 255]; };
          return [...document.querySelectorAll("body *")].filter(element => element.checkVisibility() && [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())).map(element => {
            const [a, b] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
            return [element.textContent.slice(0, 30), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
          }).filter(([, ratio]) => ratio < 4.5);
        }));
        unnamed.push(...await page.$$eval("button, input, select", all => all.filter(each => !(each.innerText || each.labels?.length || each.getAttribute("aria-label"))).map(each => each.id)));
      }
    }
    return { wide, weak, unnamed };
  },
};

const results = {};
try {
  for (const name of Object.keys(scenarios)) {
    results[name] = await scenarios[name]().catch(async error => (
      { error: String(error), pages: await Promise.all(pages.map(page => page.innerText("body"))) }));
    await Promise.all(pages.splice(0).map(page => page.close()));
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify({ ...results, problems, elsewhere }));
