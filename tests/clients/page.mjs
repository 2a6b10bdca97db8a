// Bundles the page of examples/react_chat: `node page.mjs SOURCE VERSION FILE` writes one HTML file.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const [source, version, file] = process.argv.slice(2);
const installed = name => fileURLToPath(import.meta.resolve(name));
const forVersion = {
  name: "version",
  setup({ onLoad }) {
    onLoad({ filter: /server\.js$/ }, ({ path }) => (
      { contents: readFileSync(path, "utf8").replace('"x-ai-sdk-version": "7"', `"x-ai-sdk-version": "${version}"`) }));
  },
};
const { outputFiles } = await build({
  entryPoints: [`${source}/src/main.jsx`], bundle: true, write: false, outdir: "out", format: "iife", jsx: "automatic",
  minify: true, define: { "process.env.NODE_ENV": '"production"' }, plugins: [forVersion],
  nodePaths: ["node_modules"],
  alias: { ai: installed(`ai${version}`), "@ai-sdk/react": installed(`react-ai${version}`) },
});
const text = end => outputFiles.find(output => output.path.endsWith(end)).text.replaceAll("</script", "<\\/script");
const head = `<meta charset="utf-8"><title>Chat</title><style>${text(".css")}</style>`;
writeFileSync(file, `<!doctype html><html lang="en"><head>${head}</head><body><div id="root"></div><script>${text(".js")}</script></body></html>`);
