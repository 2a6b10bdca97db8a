import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";
import { useState } from "react";
import { Message } from "./Message.jsx";
import { cancelRun, headers, loadMessages } from "./server.js";

const transport = new DefaultChatTransport({ api: "/api/chat", headers, body: { agent: "support" } });

/** Tools that run in the browser: those that the agent declares with `deferred=True`. */
const clientTools = {
  time_zone: () => Intl.DateTimeFormat().resolvedOptions().timeZone,
};

export function Chat({ id, initialMessages }) {
  const [text, setText] = useState("");
  const chat = useChat({
    id,
    messages: initialMessages,
    resume: true, // join the answer under way, if there is one
    transport,
    sendAutomaticallyWhen: options =>
      lastAssistantMessageIsCompleteWithToolCalls(options) ||
      lastAssistantMessageIsCompleteWithApprovalResponses(options),
    onToolCall({ toolCall: { toolName, toolCallId, input } }) {
      const run = clientTools[toolName];
      if (run) chat.addToolOutput({ tool: toolName, toolCallId, output: run(input) });
    },
  });
  const { messages, status, error } = chat;
  const isBusy = status === "submitted" || status === "streaming";

  async function stop() {
    if (!(await cancelRun(id))) await chat.stop();
  }

  /** After a lost connection: read the answer from its start, or load it if it is complete by now. */
  async function reconnect() {
    await chat.resumeStream();
    if (!messages.at(-1)?.metadata?.reason) chat.setMessages(await loadMessages(id));
  }

  function send(event) {
    event.preventDefault();
    if (!text.trim() || isBusy) return;
    chat.sendMessage({ text });
    setText("");
  }

  return (
    <main data-status={status}>
      <div role="log" aria-live="polite">
        {messages.map(message => (
          <Message key={message.id} message={message} decide={chat.addToolApprovalResponse} />
        ))}
      </div>
      {error && (
        <p role="alert">
          {error.message} <button onClick={reconnect}>Reconnect</button>
        </p>
      )}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={event => setText(event.target.value)} autoFocus />
        {isBusy ? (
          <button type="button" onClick={stop}>Stop</button>
        ) : (
          <button type="submit">Send</button>
        )}
        <button type="button" disabled={isBusy || messages.length === 0} onClick={() => chat.regenerate()}>
          Answer again
        </button>
      </form>
    </main>
  );
}
