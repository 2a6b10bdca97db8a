// Unpacks the Chromium of the npm package into a folder: `node chromium.mjs FOLDER`.
import { chmodSync, createReadStream, createWriteStream, mkdirSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { execFileSync } from "node:child_process";
import { createBrotliDecompress } from "node:zlib";
import { pipeline } from "node:stream/promises";

const [folder] = process.argv.slice(2);
const unpack = (name, file) => pipeline(
  createReadStream(`node_modules/@sparticuz/chromium/bin/${name}.br`), createBrotliDecompress(), createWriteStream(file));
mkdirSync(folder, { recursive: true });
await unpack("chromium", `${folder}/chromium`);
chmodSync(`${folder}/chromium`, 0o755);
for (const name of ["al2023", "fonts", "swiftshader"]) {
  await unpack(`${name}.tar`, `${folder}/${name}.tar`);
  execFileSync("tar", ["xf", `${name}.tar`], { cwd: folder });
}
// Without fonts, text has no size.
const fonts = resolve(folder, "fonts");
writeFileSync(`${folder}/fonts.conf`, `<fontconfig><dir>${fonts}</dir><cachedir>${fonts}/cache</cachedir></fontconfig>`);
