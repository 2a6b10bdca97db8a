// Pictures of the pages: `node pictures.mjs CHROMIUM CHAT_URL PROMPT CHAT_FILE INSPECTOR_URL INSPECTOR_FILE`.
const [chromiumFolder, chatUrl, prompt, chatFile, inspectorUrl, inspectorFile] = process.argv.slice(2);
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: `${chromiumFolder}/chromium`, args: ["--no-sandbox", "--disable-background-networking"],
  env: { ...process.env, LD_LIBRARY_PATH: `${chromiumFolder}/lib`, FONTCONFIG_PATH: chromiumFolder },
});
const open = async (url, width, height) => {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: "light" });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  await page.goto(url);
  return page;
};

const chat = await open(chatUrl, 900, 1020);
await chat.fill("#prompt", prompt);
await chat.press("#prompt", "Enter");
await chat.waitForSelector(".exchange[data-state=over]");
await chat.click(".timeline summary");
await chat.waitForSelector(".timeline th[scope=row]");
await chat.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
await chat.screenshot({ path: chatFile });

const inspector = await open(inspectorUrl, 1440, 680);
await inspector.waitForSelector("#findings button");
await inspector.focus("#list");
await inspector.keyboard.press("o");
await inspector.waitForSelector("#detail:not([hidden])");
await inspector.screenshot({ path: inspectorFile });
await browser.close();
