// Headless Chromium from a folder that `chromium.mjs` has made.
import { chromium } from "playwright-core";

export const launch = folder => chromium.launch({
  executablePath: `${folder}/chromium`, args: ["--no-sandbox", "--disable-background-networking"],
  env: { ...process.env, LD_LIBRARY_PATH: `${folder}/lib`, FONTCONFIG_PATH: folder },
});
