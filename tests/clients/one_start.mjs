// Clients that send a start again: `node one_start.mjs URL CLIENT` prints the text that each has got at the end.
const [url, client] = process.argv.slice(2);
import Anthropic from "@anthropic-ai/sdk";
import { HttpAgent } from "@ag-ui/client";
import OpenAI from "openai";
import { AbstractChat, DefaultChatTransport } from "ai7";

console.error = () => {};
process.on("unhandledRejection", () => {});  // of a connection that was cut
const timeout = 1000, maxRetries = 60;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", timeout, maxRetries });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none", timeout, maxRetries });
const messages = [{ role: "user", content: "Pay 5." }], model = "desk";

/** A fetch whose first response is cut off after a second. */
let isCut = false;
const cutOnce = async (address, options) => {
  if (options?.method !== "POST" || isCut) return fetch(address, options);
  isCut = true;
  const controller = new AbortController();
  setTimeout(() => controller.abort(), timeout);
  return fetch(address, { ...options, signal: controller.signal });
};

class State {
  status = "ready"; error = undefined; messages = [];
  pushMessage = message => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, structuredClone(message)); };
  snapshot = structuredClone;
}

const clients = {
  chat: async () => (await openai.chat.completions.create({ model, messages })).choices[0].message.content,
  responses: async () => (await openai.responses.create({ model, input: "Pay 5." })).output_text,
  messages: async () => (await anthropic.messages.create({ model, max_tokens: 100, messages })).content.map(part => part.text).join(""),

  async useChat() {
    const state = new State(), id = "chat";
    const transport = new DefaultChatTransport({ api: `${url}/api/chat`, headers: { "x-ai-sdk-version": "7" }, fetch: cutOnce });
    const chat = new (class extends AbstractChat {})({ id, state, transport });
    const message = { id: "m1", role: "user", parts: [{ type: "text", text: "Pay 5." }] };
    await chat.sendMessage(message);
    state.messages = [];  // as a page that was loaded again, whose user sends the message again
    await chat.sendMessage(message);
    return state.messages.at(-1).parts.filter(part => part.type === "text").map(part => part.text).join("");
  },

  async agUI() {
    const agent = new HttpAgent({ url: `${url}/agui`, threadId: "t1", fetch: cutOnce });
    agent.addMessage({ id: "m1", role: "user", content: "Pay 5." });
    await agent.runAgent({}).catch(() => {});
    await agent.runAgent({});
    return agent.messages.filter(message => message.role === "assistant").map(message => message.content ?? "").join("");
  },
};
console.log(JSON.stringify(await clients[client]()));
