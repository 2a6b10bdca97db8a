// Agents of AG-UI: `node ag_ui.mjs URL SCENARIO` prints what the client has at the end.
const [url, scenario, ...rest] = process.argv.slice(2);
import { HttpAgent } from "@ag-ui/client";

const id = crypto.randomUUID();
const complaints = [];
console.warn = (...words) => complaints.push(words.join(" "));
console.error = () => {};
process.on("unhandledRejection", () => {});  // of a connection that was cut, besides the error of the run

const make = (options = {}) => new HttpAgent({ url: `${url}/agui?agent=support`, threadId: id, ...options });
const ask = (agent, text) => agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });

/** Runs the agent; returns the events, and how the run ended. */
const run = async (agent, parameters = {}) => {
  const events = [];
  let ending, error;
  try {
    await agent.runAgent(parameters, {
      onEvent: ({ event }) => { events.push(event); },
      onRunFinishedEvent: ({ event, ...rest }) => {
        ending = { outcome: rest.outcome, interrupts: rest.interrupts, pending: rest.pendingToolCallIds, result: rest.result, usage: event.usage };
      },
      onRunErrorEvent: ({ event }) => { ending = { outcome: "error", message: event.message, code: event.code }; },
    });
  } catch (problem) { error = String(problem); }
  return { events, ending, error };
};

const names = new Map();
const plain = value => JSON.parse(JSON.stringify(value), (key, value) => {
  if (["toolCallId", "id", "messageId", "parentMessageId", "runId"].includes(key) && typeof value === "string") {
    if (!names.has(value)) names.set(value, `id ${names.size}`);
    return names.get(value);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
});
const plainAlone = value => { names.clear(); return plain(value); };
const kinds = events => events.map(event => event.type);
const print = value => console.log(JSON.stringify({ complaints, ...value }));

/** A fetch whose response breaks off after some frames, also for the server. */
const cutAfter = count => async (address, options) => {
  const controller = new AbortController();
  const response = await fetch(address, { ...options, signal: controller.signal });
  let left = count, rest = "";
  const body = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new TransformStream({
    transform(text, stream) {
      const frames = (rest + text).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        if (left-- <= 0) { controller.abort(); stream.error(new TypeError("network error")); return; }
        stream.enqueue(frame + "\n\n");
      }
    },
  })).pipeThrough(new TextEncoderStream());
  return new Response(body, { status: response.status, headers: response.headers });
};

const scenarios = {
  async send() {
    const agent = make();
    ask(agent, "three steps");
    const { events, ending } = await run(agent);
    const first = plain(agent.messages);
    ask(agent, "and now?");
    await run(agent);
    const other = make();
    await run(other);
    print({ ending, kinds: kinds(events), custom: plain(events.filter(event => event.type === "CUSTOM")), first,
            messages: plain(agent.messages), loaded: plain(other.messages) });
  },

  async cuts() {
    const whole = make({ threadId: `${id} whole` });
    ask(whole, "three steps");
    await run(whole);
    const expected = JSON.stringify(plainAlone(whole.messages));
    const different = [];
    let count = 0;
    for (; ; count++) {
      const agent = make({ threadId: `${id} ${count}`, fetch: cutAfter(count) });
      ask(agent, "three steps");
      const { error } = await run(agent);
      if (!error) break;
      agent.fetch = (address, options) => fetch(address, options);
      const back = await run(agent);
      const found = JSON.stringify(plainAlone(agent.messages));
      if (found !== expected || back.error || back.ending?.outcome !== "success") different.push([count, back.error, found]);
    }
    print({ count, different, expected: JSON.parse(expected) });
  },

  async approve() {
    const agent = make();
    ask(agent, "pay 7");
    const waiting = await run(agent);
    const resume = agent.pendingInterrupts.map(interrupt => rest[0] === "cancel"
      ? { interruptId: interrupt.id, status: "cancelled" }
      : { interruptId: interrupt.id, status: "resolved", payload: { approved: rest[0] === "yes", reason: "because" } });
    const { ending, events } = await run(agent, { resume });
    print({ waiting: plain(waiting.ending), ending, kinds: kinds(events), messages: plain(agent.messages), pending: agent.pendingInterrupts });
  },

  async forge() {
    const agent = make();
    ask(agent, "pay 7");
    await run(agent);
    const resume = agent.pendingInterrupts.map(interrupt => ({ interruptId: interrupt.id.replace(/.$/, "x"), status: "resolved", payload: { approved: true } }));
    agent.pendingInterrupts = [];
    print(await run(agent, { resume }));
  },

  async tools() {
    const agent = make(), called = [];
    ask(agent, "change_color please");
    const tools = [{ name: "change_color", description: "Change the color of the page.",
      parameters: { type: "object", properties: { color: { type: "string" } }, required: ["color"] } }];
    const first = await run(agent, { tools });
    for (const call of agent.messages.at(-1).toolCalls) {
      called.push([call.function.name, JSON.parse(call.function.arguments)]);
      agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content: "now red" });
    }
    const { ending } = await run(agent, { tools });
    print({ pending: first.ending.pending.length, outcome: first.ending.outcome, called, ending, messages: plain(agent.messages) });
  },

  async reload() {
    const agent = make();
    ask(agent, `hold ${id}`);
    const running = run(agent);
    while (!agent.messages.at(-1).toolCalls?.length) await new Promise(resolve => setTimeout(resolve, 5));
    agent.abortRun();
    await running;
    const other = make();
    const resuming = run(other);
    while (!other.messages.at(-1)?.toolCalls?.length) await new Promise(resolve => setTimeout(resolve, 5));
    await fetch(`${url}/gate/${id}`, { method: "POST" });
    const { ending } = await resuming;
    print({ ending, messages: plain(other.messages) });
  },

  async stop() {
    const agent = make();
    ask(agent, `hold ${id}`);
    let runId;
    const running = run(agent, {});
    agent.subscribe({ onRunStartedEvent: ({ event }) => { runId = event.metadata.runId; } });
    while (!agent.messages.at(-1).toolCalls?.length) await new Promise(resolve => setTimeout(resolve, 5));
    const active = (await (await fetch(`${url}/threads/${id}`)).json()).active;
    await fetch(`${url}/runs/${active}/cancel`, { method: "POST" });
    const { ending } = await running;
    ask(agent, "still there?");
    await run(agent);
    print({ ending, messages: plain(agent.messages) });
  },

  async retry() {
    const agent = make();
    ask(agent, `retry ${id}`);
    const { events, ending } = await run(agent);
    print({ ending, kinds: kinds(events), messages: plain(agent.messages) });
  },

  async fail() {
    const agent = make();
    ask(agent, "fail now");
    const { ending, error } = await run(agent);
    print({ ending, error, messages: plain(agent.messages) });
  },

  async output() {
    const agent = make({ url: `${url}/agui?agent=forms` });
    ask(agent, "form please");
    const { ending, events } = await run(agent);
    print({ ending, kinds: kinds(events), state: agent.state });
  },
};

await scenarios[scenario]();
