"use strict";
// A call of a tool: its arguments as they grow, what it waits for, how long it runs, and its result.

const CALL_STATES = {
  growing: "writing arguments", preparing: "preparing", ready: "ready", waiting: "waiting for you", running: "running", done: "done", failed: "failed",
  declined: "declined", cancelled: "cancelled", discarded: "discarded", skipped: "not run", invalid: "not run",
};
const running = new Set(); // calls whose tool runs: one timer shows the time of all of them
setInterval(() => { for (const card of running) card.tick(); }, 100);

class CallCard {
  constructor(name, send) {
    this.name = name;
    this.send = send;
    this.title = el("h3", {}, name);
    this.state = el("span", { class: "state" });
    this.time = el("span", { class: "time" });
    this.early = el("span", { class: "early", hidden: true, title: "The tool started while the model was still writing" }, "early");
    this.list = el("dl", { class: "fields" });
    this.progress = el("div", { class: "progress", hidden: true });
    this.inside = el("div", { class: "inner", hidden: true });
    this.asking = el("div");
    this.result = el("div");
    this.element = el("section", { class: "call" },
      el("header", {}, el("span", { class: "mark", "aria-hidden": "true" }), this.title, this.early, this.state, this.time),
      this.list, this.progress, this.inside, this.asking, this.result);
    this.fields = new GrowingFields(this.list);
    this.shownInside = null; // the answer of an agent that runs as this tool: its result is not shown twice
    this.began = null; // by the clock here
    this.setState("growing");
  }

  setState(state) {
    this.element.dataset.state = state;
    this.element.setAttribute("aria-label", `Call of ${this.name}, ${CALL_STATES[state]}`);
    this.state.textContent = CALL_STATES[state];
    if (state !== "running") running.delete(this);
  }

  get isOpen() { return ["growing", "preparing", "ready", "waiting", "running"].includes(this.element.dataset.state); }

  grow(piece) { this.fields.feed(piece); }

  complete(event) {
    this.fields.set(event.arguments);
    if (this.element.dataset.state === "growing") this.setState("ready");
  }

  invalid(event) {
    this.setState("invalid");
    this.addNote(event.message || `The call is ${event.why}.`);
  }

  prepare() {
    if (["growing", "ready"].includes(this.element.dataset.state)) this.setState("preparing");
  }

  start(event) {
    if (event.arguments) this.fields.set(event.arguments);
    this.asking.replaceChildren();
    this.early.hidden = !event.is_early;
    this.began = performance.now();
    this.setState("running");
    running.add(this);
  }

  tick() { this.time.textContent = duration((performance.now() - this.began) / 1000); }

  report(data) {
    const done = data?.percent ?? data?.progress;
    const all = data?.percent === undefined ? data?.total : 100;
    const parts = [];
    if (typeof done === "number" && typeof all === "number" && all > 0) {
      parts.push(el("progress", { max: String(all), value: String(done), "aria-label": `Progress of ${this.name}` }));
    }
    const words = typeof data?.message === "string" ? data.message : parts.length ? `${Math.round(100 * done / all)} %` : readable(data);
    this.progress.replaceChildren(...parts, el("span", {}, words));
    this.progress.hidden = false;
  }

  end({ ending, result, seconds }) {
    this.asking.replaceChildren();
    this.progress.hidden = true;
    this.setState(ending === "done" && result.is_error ? "failed" : ending);
    this.time.textContent = typeof seconds === "number" ? duration(seconds) : "";
    if (result.text !== this.shownInside) this.result.replaceChildren(...resultElements(result, this.name));
  }

  ask(event) {
    if (event.kind !== "input") this.fields.set(event.arguments ?? {});
    this.setState("waiting");
    this.asking.replaceChildren(requestForm(event, this.send));
  }

  decided({ approved, reason }) {
    this.asking.replaceChildren();
    this.setState(approved ? "ready" : "declined");
    if (reason) this.addNote(`Reason: ${reason}`);
  }

  /** The run is over: nothing more comes. */
  stop() {
    this.asking.replaceChildren();
    if (this.isOpen) this.setState("cancelled");
  }

  addNote(text) { this.result.append(el("p", { class: "note" }, text)); }
}

const PREVIEW = 90;

function resultElements(result, name) {
  const text = result.text ?? "";
  const parts = [];
  const line = text.trim().replace(/\s+/g, " ");
  if (text.length <= PREVIEW && !text.trim().includes("\n")) {
    if (line) parts.push(el("p", { class: "result" }, line));
  } else {
    const body = el("pre", { tabindex: "0", "aria-label": `Result of ${name}` }, readable(typedValue(text)));
    parts.push(el("details", { class: "result" }, el("summary", {}, `${line.slice(0, PREVIEW)}…`), body));
  }
  for (const media of result.media ?? []) parts.push(mediaElement(media, name));
  return parts;
}

/** A picture that came as data; anything else is named only, as this page fetches nothing. */
function mediaElement(media, name) {
  if (media.type === "image" && /^data:image\//.test(media.url ?? "")) return el("img", { src: media.url, alt: `Image from ${name}` });
  return el("p", { class: "note" }, `${media.type === "image" ? "An image" : "A file"} (${media.media_type || "unknown type"})`);
}
