// The SDKs of OpenAI and Anthropic with an agent as their model: `node sdks.mjs URL` prints what each of them has got.
const [url] = process.argv.slice(2);
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import OpenAI from "openai";

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const model = "support";
const ask = content => [{ role: "user", content }];
const schema = { type: "object", properties: { color: { type: "string" } }, required: ["color"] };
const description = "Change the color of the page.";
const failure = async work => {
  try { await work(); } catch (error) { return { status: error.status ?? null, message: error.message, name: error.constructor.name }; }
};

const scenarios = {
  async chat() {
    const whole = await openai.chat.completions.create({ model, messages: ask("three steps") });
    const stream = openai.chat.completions.stream({ model, messages: ask("three steps") });
    const pieces = [];
    stream.on("content", piece => pieces.push(piece));
    const streamed = await stream.finalChatCompletion();
    return { whole: whole.choices[0].message.content, reason: whole.choices[0].finish_reason, pieces: pieces.length,
             streamed: streamed.choices[0].message.content };
  },

  async responses() {
    const whole = await openai.responses.create({ model, input: "three steps" });
    const stream = openai.responses.stream({ model, input: "three steps" });
    const kinds = new Set();
    stream.on("event", event => kinds.add(event.type));
    const streamed = await stream.finalResponse();
    return { whole: whole.output_text, reason: whole.status, streamed: streamed.output_text, kinds: [...kinds] };
  },

  async messages() {
    const text = message => message.content.filter(block => block.type === "text").map(block => block.text).join("");
    const body = { model, max_tokens: 1000, messages: ask("three steps") };
    const whole = await anthropic.messages.create(body);
    const stream = anthropic.messages.stream(body);
    const pieces = [];
    stream.on("text", piece => pieces.push(piece));
    const streamed = await stream.finalMessage();
    return { whole: text(whole), reason: whole.stop_reason, streamed: text(streamed), pieces: pieces.length };
  },

  async runTools() {
    const painted = [], found = [];
    for (const stream of [false, true]) {
      const runner = openai.chat.completions.runTools({
        model, stream, messages: ask("both of them"),
        tools: [{ type: "function", function: { name: "change_color", description, parameters: schema, parse: JSON.parse,
                                                function: ({ color }) => { painted.push(color); return `now ${color}`; } } }],
      });
      found.push(await runner.finalContent());
    }
    return { painted, found };
  },

  async responsesLoop() {
    const input = ask("both of them");
    const tools = [{ type: "function", name: "change_color", description, parameters: schema, strict: false }];
    const first = await openai.responses.stream({ model, input, tools }).finalResponse();
    const calls = first.output.filter(item => item.type === "function_call");
    const outputs = calls.map(call => ({ type: "function_call_output", call_id: call.call_id, output: `now ${JSON.parse(call.arguments).color}` }));
    const second = await openai.responses.create({ model, input: [...input, ...first.output, ...outputs], tools });
    return { calls: calls.length, text: second.output_text };
  },

  async toolRunner() {
    const painted = [], found = [];
    for (const stream of [false, true]) {
      const runner = anthropic.beta.messages.toolRunner({
        model, max_tokens: 1000, stream, messages: ask("both of them"),
        tools: [betaTool({ name: "change_color", description, inputSchema: schema,
                           run: ({ color }) => { painted.push(color); return `now ${color}`; } })],
      });
      const message = await runner.runUntilDone();
      found.push(message.content.filter(block => block.type === "text").map(block => block.text).join(""));
    }
    return { painted, found };
  },

  async errors() {
    const tools = [{ type: "function", function: { name: "look", parameters: schema } }];
    return {
      unknown: await failure(() => openai.chat.completions.create({ model: "other", messages: ask("hi") })),
      taken: await failure(() => openai.chat.completions.create({ model, messages: ask("hi"), tools })),
      failed: await failure(() => openai.chat.completions.create({ model, messages: ask("fail now") })),
      streamed: await failure(() => openai.chat.completions.stream({ model, messages: ask("fail now") }).finalContent()),
      responses: await failure(() => openai.responses.create({ model, input: "fail now" })),
      messages: await failure(() => anthropic.messages.create({ model, max_tokens: 9, messages: ask("fail now") })),
      messagesStreamed: await failure(() => anthropic.messages.stream({ model, max_tokens: 9, messages: ask("fail now") }).finalMessage()),
      history: await failure(() => anthropic.messages.create({ model, max_tokens: 9, messages: [
        { role: "user", content: [{ type: "tool_result", tool_use_id: "call_1", content: "red" }] }] })),
    };
  },
};

const results = {};
for (const [name, scenario] of Object.entries(scenarios)) results[name] = await scenario();
console.log(JSON.stringify(results));
