"use strict";
// Requests to the server, and streams of events that continue after a lost connection.

const BASE = location.pathname.endsWith("/") ? location.pathname : `${location.pathname}/`;
const MAX_TRIES = 8; // connections in a row that bring no event
const FIRST_PAUSE = 300, LONGEST_PAUSE = 8000; // milliseconds between two tries
const SILENCE = 45_000; // the server sends a comment every 15 seconds

/** A request that the server refused: a code for programs, words for people, and the id under which its log has more. */
class ServerError extends Error {
  constructor(status, { code = "", message = `The server answered with status ${status}`, request_id: id = "" } = {}) {
    super(message);
    Object.assign(this, { status, code, requestId: id });
  }

  /** Whether the same request may work later. */
  get isTemporary() { return this.status >= 500 || this.status === 429 || this.status === 408; }
}

async function request(method, path, body, options = {}) {
  const headers = { ...options.headers };
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(BASE + path, {
    method, headers, signal: options.signal, credentials: "same-origin", cache: "no-store",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  throw Object.assign(new ServerError(response.status, error), { runId: response.headers.get("x-run-id") });
}

const getJSON = async path => (await request("GET", path)).json();
const postJSON = async (path, body, options) => (await request("POST", path, body, options)).json();

/** What went wrong, for a person. */
function inWords(error) {
  if (error instanceof ServerError) return sentence(error.requestId ? `${error.message} (request ${error.requestId})` : error.message);
  return error instanceof TypeError ? "The server cannot be reached." : String(error.message ?? error);
}

/** Calls `onEvents` with the events of a run until `done`. It reconnects after the last event that came; `onState` is
 *  told. It throws when the server refuses the request, or cannot be reached for a while. */
async function follow(runId, { after = "", signal, onEvents, onState }) {
  let tries = 0;
  while (!signal.aborted) {
    try {
      for await (const events of connection(runId, after, signal)) {
        onState("connected");
        if (!events.length) continue;
        tries = 0;
        after = events.at(-1).id;
        onEvents(events);
        if (events.at(-1).data.type === "done") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ServerError && !error.isTemporary) throw error;
    }
    tries += 1;
    if (tries > MAX_TRIES) throw new Error("The connection was lost, and the server did not come back.");
    onState("reconnecting");
    await pause(Math.min(FIRST_PAUSE * 2 ** (tries - 1), LONGEST_PAUSE) * (0.75 + Math.random() / 2), signal);
  }
}

/** The events of one connection, in lists as they come; the first list is empty. */
async function* connection(runId, after, signal) {
  const silence = new AbortController();
  const stop = () => silence.abort();
  signal.addEventListener("abort", stop, { once: true });
  let timer = setTimeout(stop, SILENCE);
  try {
    const headers = after ? { "last-event-id": after } : {};
    const response = await request("GET", `runs/${encodeURIComponent(runId)}/events`, undefined, { headers, signal: silence.signal });
    yield [];
    const frames = new Frames();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      timer = setTimeout(stop, SILENCE);
      const events = frames.feed(value);
      if (events.length) yield events;
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    silence.abort();
  }
}

/** Server-sent events as the server of this page writes them: `id: POSITION`, `data: JSON`, an empty line. */
class Frames {
  constructor() { this.rest = ""; }

  feed(text) {
    const blocks = (this.rest + text).split("\n\n");
    this.rest = blocks.pop();
    const events = [];
    for (const block of blocks) {
      const lines = block.split("\n");
      const data = lines.find(line => line.startsWith("data: "));
      if (data) events.push({ id: lines.find(line => line.startsWith("id: "))?.slice(4) ?? "0", data: JSON.parse(data.slice(6)) });
    }
    return events;
  }
}

/** Waits; a browser that is online again, or a page that is looked at again, does not. */
function pause(milliseconds, signal) {
  return new Promise(resolve => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    addEventListener("online", end);
    signal.addEventListener("abort", end);
  });
}
