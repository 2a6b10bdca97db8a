// The page in the box when the log loses events that it shows: `node reset_page.mjs URL CHROMIUM PICTURE`.
const [url, chromiumFolder, picture] = process.argv.slice(2);
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: `${chromiumFolder}/chromium`, args: ["--no-sandbox", "--disable-background-networking"],
  env: { ...process.env, LD_LIBRARY_PATH: `${chromiumFolder}/lib`, FONTCONFIG_PATH: chromiumFolder },
});
const post = path => fetch(`${url}${path}`, { method: "POST" });
const problems = [];
const page = await browser.newPage({ viewport: { width: 760, height: 520 } });
page.setDefaultTimeout(30_000);
page.on("pageerror", error => problems.push(String(error)));
await page.goto(`${url}#t`);
const text = () => page.$$eval("div.text", elements => elements.map(element => element.textContent.trim()).join(" "));
const has = words => page.waitForFunction(words => document.querySelector(".answer")?.innerText.includes(words), words);

await post("write/first");
await has("first 5.");
const before = await text();
// A reader whose connection stays: the log loses the text, and another worker writes other text.
await post("lose");
await post("write/second");
await has("second 5.");
const during = { text: await text(), notes: await page.$$eval(".note", notes => notes.map(note => note.innerText)), announced: await page.textContent("#announcer") };
// A reader that reconnects after a loss.
await post("cut");
await post("lose");
await post("write/third");
await has("third 5.");
const after = { text: await text(), prompts: await page.$$eval(".user p", prompts => prompts.map(prompt => prompt.innerText)) };
await page.screenshot({ path: picture });
await post("end");
await page.waitForSelector(".exchange[data-state=over]");
const end = { text: await text(), summaries: await page.$$eval(".timeline summary > span", spans => spans.length), rows: await page.$$eval(".exchange", all => all.length) };
console.log(JSON.stringify({ before, during, after, end, problems }));
await browser.close();
