// Talks to a served agent over AG-UI: `node client.mjs http://127.0.0.1:8000 "Where is my parcel?"`.
import { HttpAgent } from "@ag-ui/client";

const [url = "http://127.0.0.1:8000", ...words] = process.argv.slice(2);
const agent = new HttpAgent({ url: `${url}/agui?agent=support` });
const show = {
  onTextMessageContentEvent: ({ event }) => { process.stdout.write(event.delta); },
  onTextMessageEndEvent: () => { process.stdout.write("\n"); },
  onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => { console.log("→", toolCallName, JSON.stringify(toolCallArgs)); },
  onToolCallResultEvent: ({ event }) => { console.log("←", event.content); },
  onRunErrorEvent: ({ event }) => { console.log("failed:", event.message); },
};

/** Tools that run here: the model gets their declarations with each run. */
const tools = [{
  name: "time_zone", description: "The time zone of the user.", parameters: { type: "object", properties: {} },
  run: () => Intl.DateTimeFormat().resolvedOptions().timeZone,
}];
const declarations = tools.map(({ run, ...declaration }) => declaration);

/** The calls that wait for a result from here. */
const openCalls = () => {
  const answered = new Set(agent.messages.filter(({ role }) => role === "tool").map(({ toolCallId }) => toolCallId));
  return agent.messages.flatMap(({ toolCalls = [] }) => toolCalls).filter(({ id }) => !answered.has(id));
};

agent.addMessage({ id: crypto.randomUUID(), role: "user", content: words.join(" ") || "Hello" });
await agent.runAgent({ tools: declarations }, show);
while (agent.pendingInterrupts.length || openCalls().length) {
  // A real program asks a person here. This one approves everything.
  const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  if (!resume.length) {
    for (const { id, function: { name, arguments: text } } of openCalls()) {
      const content = String(tools.find(tool => tool.name === name).run(JSON.parse(text)));
      agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: id, content });
    }
  }
  await agent.runAgent({ tools: declarations, resume }, show);
}
