// Chats of the AI SDK without a page: `node ai_sdk.mjs URL VERSION SCENARIO` prints what the client has at the end.
const [url, version, scenario, ...rest] = process.argv.slice(2);
const id = crypto.randomUUID();
const { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses,
        lastAssistantMessageIsCompleteWithToolCalls } = await import(`ai${version}`);

class State {
  status = "ready"; error = undefined; messages = []; seen = [];
  pushMessage = message => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => {
    this.messages = [...this.messages.slice(0, index), this.snapshot(message), ...this.messages.slice(index + 1)];
    this.seen.push(JSON.stringify(message.parts.at(-1)));
  };
  snapshot = structuredClone;
}

class Chat extends AbstractChat {
  constructor({ id, messages = [], ...options }) {
    const state = new State();
    state.messages = messages;
    super({ id, state, transport: new DefaultChatTransport({
      api: `${url}/api/chat`, body: { agent: "support" }, headers: { "x-ai-sdk-version": version }, fetch: options.fetch }), ...options });
    this.values = state;
  }
}

/** A fetch whose response breaks off after some frames, also for the server. */
const cutAfter = count => async (address, options) => {
  const controller = new AbortController();
  const response = await fetch(address, { ...options, signal: controller.signal });
  if (options.method !== "POST" || !response.ok) return response;
  let left = count;
  const body = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new TransformStream({
    start() { this.rest = ""; },
    transform(text, stream) {
      const frames = (this.rest + text).split("\n\n");
      this.rest = frames.pop();
      for (const frame of frames) {
        if (left-- <= 0) { controller.abort(); stream.error(new TypeError("network error")); return; }
        stream.enqueue(frame + "\n\n");
      }
    },
  })).pipeThrough(new TextEncoderStream());
  return new Response(body, { status: response.status, headers: response.headers });
};

const ids = new Map();
/** A message without what differs from run to run. */
const plain = message => JSON.parse(JSON.stringify(message), (key, value) => {
  if (key === "toolCallId" || key === "runId" || (key === "id" && String(value).length > 30)) {
    if (!ids.has(value)) ids.set(value, `id ${ids.size}`);
    return ids.get(value);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
});
const plainAlone = message => { ids.clear(); return plain(message); };
const until = async condition => { while (!condition()) await new Promise(resolve => setTimeout(resolve, 5)); };
const holds = chat => () => chat.messages[1]?.parts.some(part => part.type === "tool-hold");
const print = value => console.log(JSON.stringify(value));
/** What a page does after its connection was lost. */
const comeBack = async chat => {
  await chat.resumeStream();
  if (chat.lastMessage?.metadata?.reason === undefined) chat.messages = await stored(chat.id);
};
const stored = async id => (await (await fetch(`${url}/api/chat/${id}`)).json()).messages;
const outcome = chat => ({ status: chat.status, error: chat.error?.message, messages: chat.messages.map(plain) });

const scenarios = {
  async send() {
    const chat = new Chat({ id });
    await chat.sendMessage({ text: "three steps" });
    const first = chat.messages.map(plain), seen = chat.values.seen;
    await chat.sendMessage({ text: "and now?" });
    const all = outcome(chat);
    print({ ...all, seen, stored: (await stored(id)).map(plain), first });
  },

  async cuts() {
    const whole = new Chat({ id: `${id} whole` });
    await whole.sendMessage({ text: "three steps" });
    const expected = JSON.stringify(plainAlone(whole.messages[1]));
    let different = [], count = 0;
    for (; ; count++) {
      const chat = new Chat({ id: `${id} ${count}`, fetch: cutAfter(count) });
      await chat.sendMessage({ text: "three steps" });
      if (chat.status === "ready") break;
      await comeBack(chat);
      const found = JSON.stringify(plainAlone(chat.messages[1]));
      if (found !== expected || chat.messages.length !== 2 || chat.status !== "ready") different.push([count, found]);
    }
    print({ count, different, expected: JSON.parse(expected) });
  },

  async approve() {
    const approved = rest[0] === "yes";
    const chat = new Chat({ id, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
    await chat.sendMessage({ text: "pay 7" });
    const part = chat.messages[1].parts.at(-1), waiting = plain(part);
    const done = new Promise(resolve => { chat.onFinish = resolve; });
    await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason: "because" });
    await done;
    print({ ...outcome(chat), waiting, stored: (await stored(id)).map(plain) });
  },

  async forge() {
    const chat = new Chat({ id, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
    await chat.sendMessage({ text: "pay 7" });
    const part = chat.messages[1].parts.at(-1);
    chat.messages = [chat.messages[0], { ...chat.messages[1], parts: [{ ...part, state: "approval-responded",
      approval: { id: part.approval.id.replace(/.$/, "x"), approved: true } }] }];
    await chat.sendMessage();
    print(outcome(chat));
  },

  async locate() {
    const called = [];
    const chat = new Chat({ id, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => {
        called.push([toolCall.toolName, toolCall.input]);
        chat.addToolOutput(rest[0] === "fails"
          ? { tool: toolCall.toolName, toolCallId: toolCall.toolCallId, state: "output-error", errorText: "no signal" }
          : { tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: { latitude: 41.9 } });
      } });
    await chat.sendMessage({ text: "locate me" });
    print({ ...outcome(chat), called, stored: (await stored(id)).map(plain) });
  },

  async regenerate() {
    const chat = new Chat({ id });
    await chat.sendMessage({ text: "one" });
    await chat.sendMessage({ text: "two" });
    const before = chat.messages.map(message => message.id);
    await chat.regenerate();
    const last = chat.messages.map(message => message.id);
    await chat.regenerate({ messageId: before[1] });
    const first = outcome(chat);
    await chat.sendMessage({ text: "three", messageId: before[0] });
    print({ before, last, first, changed: outcome(chat), stored: (await stored(id)).map(plain) });
  },

  async reload() {
    const chat = new Chat({ id });
    const sending = chat.sendMessage({ text: `hold ${id}` });
    await until(holds(chat));
    await chat.stop();  // as a page does that is left
    await sending;
    const other = new Chat({ id, messages: await stored(id) });
    const resuming = other.resumeStream();
    await until(holds(other));
    await fetch(`${url}/gate/${id}`, { method: "POST" });
    await resuming;
    const idle = await fetch(`${url}/api/chat/${id}/stream`);
    print({ ...outcome(other), idle: idle.status, loaded: (await stored(id)).map(plain) });
  },

  async stop() {
    const chat = new Chat({ id });
    const sending = chat.sendMessage({ text: `hold ${id}` });
    await until(holds(chat));
    const run = chat.messages[1].metadata.runId;
    await fetch(`${url}/runs/${run}/cancel`, { method: "POST" });
    await sending;
    const stopped = outcome(chat);
    await chat.sendMessage({ text: "still there?" });
    print({ stopped, ...outcome(chat), isRun: run === chat.messages[1].id });
  },

  async retry() {
    const chat = new Chat({ id });
    await chat.sendMessage({ text: `retry ${id}` });
    print({ ...outcome(chat), stored: (await stored(id)).map(plain) });
  },

  async fail() {
    const chat = new Chat({ id });
    await chat.sendMessage({ text: "fail now" });
    print({ ...outcome(chat), stored: (await stored(id)).map(plain) });
  },
};

await scenarios[scenario]();
