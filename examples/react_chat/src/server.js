/** The version of the AI SDK, which the server must know: version 6 fails on parts that only version 7 has. */
export const headers = { "x-ai-sdk-version": "7" };

/** The messages of a chat, without the answer under way, which `resume` brings. */
export async function loadMessages(id) {
  const response = await fetch(`/api/chat/${encodeURIComponent(id)}`);
  if (!response.ok) throw new Error(`the chat cannot be loaded: ${response.status}`);
  return (await response.json()).messages;
}

/** Ends the run of a chat, and so its stream; false if there is none. To leave the page does not end it. */
export async function cancelRun(id) {
  const response = await fetch(`/threads/${encodeURIComponent(id)}`);
  const { active } = response.ok ? await response.json() : {};
  if (active) await fetch(`/runs/${active}/cancel`, { method: "POST" });
  return Boolean(active);
}
