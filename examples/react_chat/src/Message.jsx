import { getToolName, isToolUIPart } from "ai";

export function Message({ message, decide }) {
  return (
    <article data-role={message.role}>
      {message.parts.map((part, index) => <Part key={index} part={part} decide={decide} />)}
    </article>
  );
}

function Part({ part, decide }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <details><summary>Reasoning</summary>{part.text}</details>;
  if (isToolUIPart(part)) return <ToolCall part={part} decide={decide} />;
  return null;
}

/** A call: its arguments grow, it waits for approval, it reports its progress, it ends. */
function ToolCall({ part, decide }) {
  return (
    <section data-tool={getToolName(part)} data-state={part.preliminary ? "running" : part.state}>
      <b>{getToolName(part)}</b> <code>{JSON.stringify(part.input)}</code>
      {part.state === "approval-requested" && (
        <span>
          <button onClick={() => decide({ id: part.approval.id, approved: true })}>Approve</button>
          <button onClick={() => decide({ id: part.approval.id, approved: false })}>Decline</button>
        </span>
      )}
      {part.state === "output-available" && <output>{JSON.stringify(part.output)}</output>}
      {part.state === "output-error" && <output>{part.errorText}</output>}
      {part.state === "output-denied" && <output>declined</output>}
    </section>
  );
}
