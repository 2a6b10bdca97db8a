// Loops of Node clients with one tool: `node loops.mjs URL MODEL ...` prints, as JSON, the last text or
// the error of each, by model and client.

import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { isStepCount, jsonSchema, streamText, tool } from "ai7";
import OpenAI from "openai";

const PROMPT = "Say what echo prints.";
const KEY = "dummy";
const DESCRIPTION = "Run a command and look at what it prints.";
const PARAMETERS = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };

const look = ({ command }) => command.replace("echo ", "");

async function openaiChat(url, model) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0 });
  const entry = { name: "look", description: DESCRIPTION, parameters: PARAMETERS, parse: JSON.parse, function: look };
  const messages = [{ role: "user", content: PROMPT }];
  const runner = client.chat.completions.runTools({
    model,
    messages,
    tools: [{ type: "function", function: entry }],
    stream: true,
  });
  return await runner.finalContent();
}

async function openaiResponses(url, model) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0 });
  const tools = [{ type: "function", name: "look", description: DESCRIPTION, parameters: PARAMETERS, strict: false }];
  const input = [{ role: "user", content: PROMPT }];
  for (;;) {
    const response = await client.responses.stream({ model, input, tools, store: false }).finalResponse();
    const calls = response.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) return response.output_text;
    input.push(...response.output.map(({ parsed_arguments, ...item }) => item));
    for (const { call_id, arguments: text } of calls)
      input.push({ type: "function_call_output", call_id, output: look(JSON.parse(text)) });
  }
}

async function anthropicMessages(url, model) {
  const client = new Anthropic({ baseURL: url, apiKey: KEY, maxRetries: 0 });
  const run = async (input) => look(input);
  const entry = { name: "look", description: DESCRIPTION, input_schema: PARAMETERS, run, parse: (input) => input };
  const message = await client.beta.messages.toolRunner({
    model,
    max_tokens: 4000,
    messages: [{ role: "user", content: PROMPT }],
    tools: [entry],
    stream: true,
  }).runUntilDone();
  return message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
}

async function aiSDK(model) {
  const errors = [];
  const result = streamText({
    model,
    prompt: PROMPT,
    maxRetries: 0,
    stopWhen: isStepCount(5),
    tools: { look: tool({ description: DESCRIPTION, inputSchema: jsonSchema(PARAMETERS), execute: look }) },
    onError: ({ error }) => errors.push(String(error)),
  });
  await result.consumeStream();
  if (errors.length > 0) throw new Error(errors.join("; "));
  return await result.text;
}

const LOOPS = {
  "openai, Chat Completions": openaiChat,
  "openai, Responses": openaiResponses,
  "anthropic": anthropicMessages,
  "ai, openai-compatible": (url, model) => aiSDK(createOpenAICompatible({ name: "p", baseURL: `${url}/v1`, apiKey: KEY })(model)),
  "ai, openai": (url, model) => aiSDK(createOpenAI({ baseURL: `${url}/v1`, apiKey: KEY })(model)),
  "ai, anthropic": (url, model) => aiSDK(createAnthropic({ baseURL: `${url}/v1`, apiKey: KEY })(model)),
};

const [url, ...models] = process.argv.slice(2);
const results = {};
for (const model of models) {
  results[model] = {};
  for (const [name, loop] of Object.entries(LOOPS))
    try {
      results[model][name] = await loop(url, model);
    } catch (error) {
      results[model][name] = `${error}`;
    }
}
console.log(JSON.stringify(results));
process.exit(0);
