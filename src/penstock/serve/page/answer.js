"use strict";
// An answer: the events of one run as elements. An agent that runs as a tool is a view inside the card of its call.

const ENDINGS = {
  length: "The answer reached its length limit.", refused: "The model refused, or a filter ended the answer.", cut: "The answer was cut off.",
  error: "The run failed. Its log on the server has the reason.", limit: "The run reached a limit.", stopped: "The run was stopped.", cancelled: "Stopped.", paused: "Paused.",
};

const LOST = "The server lost a part of this answer. This is what it has.";

/** The events of a run, or of a run inside a call, as elements in a container. */
class RunView {
  constructor(container, answer, path = [], card = null) {
    this.container = container;
    this.outside = card; // the card of the call that this run is inside of
    this.answer = answer;
    this.path = path;
    this.step = container;
    this.blocks = new Map(); // parts of the response under way
    this.calls = new Map(); // cards by call id
    this.inner = new Map(); // views by call id
    this.thinking = null; // the reasoning that is being written
    this.lastText = "";
  }

  add(event, at) {
    this.answer.timeline.add(event, at, this.path);
    if (event.type !== "reasoning") this.endThinking(at);
    switch (event.type) {
      case "run_start": if (!this.path.length) this.answer.setPrompt(event.prompt); break;
      case "step_start": this.startStep(); break;
      case "text": this.text(event.block, "text").append(event.text); this.lastText += event.text; break;
      case "refusal": this.text(event.block, "refusal").append(event.text); break;
      case "reasoning": this.reason(event, at); break;
      case "tool_call_start": this.blocks.set(event.block, this.card(event.id, event.name)); break;
      case "tool_call_delta": this.blocks.get(event.block)?.grow(event.piece); break;
      case "tool_call": this.card(event.id, event.name).complete(event); break;
      case "tool_call_invalid": this.invalid(event); break;
      case "tool_prepare": this.card(event.call_id, event.name).prepare(); break;
      case "tool_start": this.start(event); break;
      case "tool_progress": this.card(event.call_id, event.name).report(event.data); break;
      case "tool_end": this.end(event); break;
      case "approval_request": this.ask(event); break;
      case "decision": this.calls.get(event.call_id)?.decided(event); break;
      case "said": this.step.append(userMessage(event.text)); break;
      case "retry": this.withdraw(); break;
      case "error": this.note(sentence(`${event.message}${event.code ? ` (${event.code})` : ""}`), "problem"); break;
      case "output_invalid": this.note(`The answer did not have the required form: ${event.problem}`); break;
      case "history_replaced": this.note("Earlier messages were shortened for the model."); break;
      case "taken": if (event.epoch > 1 && !this.answer.isResuming) this.note("Another worker continues this run."); break;
      case "nested": this.view(event.path.slice(this.path.length)).add(event.event, at); break;
      case "done": this.finish(event); break;
    }
  }

  startStep() {
    this.step = el("div", { class: "step" });
    this.container.append(this.step);
    this.blocks.clear();
    this.lastText = "";
  }

  text(block, kind) {
    let part = this.blocks.get(block);
    if (!(part instanceof GrowingText)) {
      const element = el("div", { class: kind });
      this.step.append(element);
      part = new GrowingText(element);
      this.blocks.set(block, part);
    }
    return part;
  }

  reason(event, at) {
    let part = this.blocks.get(event.block);
    if (!(part instanceof GrowingText)) {
      const body = el("div");
      const label = el("summary", {}, "Thinking…");
      const details = el("details", { class: "reasoning", open: true }, label, body);
      this.step.append(details);
      part = Object.assign(new GrowingText(body), { details, label, began: at });
      this.blocks.set(event.block, part);
    }
    if (this.thinking !== part) this.endThinking(at);
    this.thinking = part;
    part.append(event.text);
  }

  /** Reasoning folds when something else begins: a person may open it again. */
  endThinking(at) {
    if (this.thinking === null) return;
    this.thinking.label.textContent = `Thought for ${duration(at - this.thinking.began)}`;
    this.thinking.details.open = false;
    this.thinking = null;
  }

  card(id, name) {
    let card = this.calls.get(id);
    if (card === undefined) {
      card = new CallCard(name, (path, body) => postJSON(`runs/${this.answer.runId}/${path}`, body));
      this.calls.set(id, card);
      this.step.append(card.element);
    }
    return card;
  }

  invalid(event) {
    const card = this.blocks.get(event.block) instanceof CallCard ? this.blocks.get(event.block) : this.card(event.id || `block ${event.block}`, event.name || "a tool");
    card.invalid(event);
  }

  start(event) {
    this.card(event.call_id, event.name).start(event);
    this.answer.announce(`${event.name} runs`);
  }

  end(event) {
    this.card(event.call_id, event.name).end(event);
    if (event.ending !== "done") this.answer.announce(`${event.name} ${CALL_STATES[event.ending]}`);
  }

  ask(event) {
    this.card(event.call_id, event.name).ask(event);
    this.answer.setState("waiting");
    this.answer.announce(event.kind === "approval" ? `${event.name} waits for your approval` : `${event.name} waits for your answer`);
  }

  /** The view of the run inside a call of this one, or deeper. */
  view([id, ...rest]) {
    let view = this.inner.get(id);
    if (view === undefined) {
      const card = this.card(id, "agent");
      card.inside.hidden = false;
      view = new RunView(card.inside, this.answer, [...this.path, id], card);
      this.inner.set(id, view);
    }
    return rest.length ? view.view(rest) : view;
  }

  withdraw() {
    this.step.replaceChildren();
    this.blocks.clear();
    this.calls.forEach((card, id) => { if (!card.element.isConnected) this.calls.delete(id); });
    this.lastText = "";
    this.note("The response broke off. The model was asked again.");
  }

  note(text, kind = "") { this.step.append(el("p", { class: `note ${kind}` }, text)); }

  finish(event) {
    for (const card of this.calls.values()) card.stop();
    const why = ENDINGS[event.reason];
    const ownWords = event.reason === "limit" || event.reason === "stopped" ? event.why : "";
    if (why) this.note(sentence(ownWords || why), event.reason === "error" ? "problem" : "");
    if (this.path.length) this.outside.shownInside = this.lastText;
    else this.answer.finish(event);
  }
}

const userMessage = text => el("div", { class: "user" }, el("h2", { class: "hidden" }, "You"), el("p", {}, text));

/** One answer on the page, with the message that it answers. */
class Answer {
  constructor({ id, agent, prompt, state, announce }) {
    this.runId = id;
    this.announce = announce;
    this.timeline = new Timeline();
    this.isResuming = false; // whether the run waited until this event
    this.prompt = null;
    this.text = "";
    this.isWorking = el("p", { class: "working" }, el("span", { class: "hidden" }, "The answer is being written"));
    this.body = el("div", { class: "body" });
    this.summary = el("summary");
    this.table = el("div", { class: "chart" });
    this.details = el("details", { class: "timeline", hidden: true, ontoggle: () => this.drawTimeline() }, this.summary, this.table);
    this.article = el("article", { class: "answer", "aria-label": `Answer of ${agent}` },
      el("h2", { class: "who" }, agent), this.body, this.isWorking, this.details);
    this.element = el("div", { class: "exchange" }, this.article);
    this.view = new RunView(this.body, this);
    this.setState(state === "over" ? "loading" : "running");
    if (prompt) this.setPrompt(prompt);
  }

  get isActive() { return ["running", "waiting"].includes(this.element.dataset.state); }
  get isOver() { return this.element.dataset.state === "over"; }

  setPrompt(text) {
    if (this.prompt !== null || !text) return;
    this.prompt = userMessage(text);
    this.element.prepend(this.prompt);
  }

  add(events) {
    for (const { data } of events) {
      if (data.type === "reset") { this.reset(); continue; }
      this.isResuming = this.element.dataset.state === "waiting";
      if (data.type === "waiting") this.setState("waiting");
      else if (this.isResuming && data.type !== "approval_request") this.setState("running");
      this.view.add(data, data.at);
    }
    if (this.details.open) this.drawTimeline();
  }

  /** The server lost events that are shown: all that it has come again. */
  reset() {
    this.timeline = new Timeline();
    this.body.replaceChildren();
    this.view = new RunView(this.body, this);
    this.text = "";
    this.summary.replaceChildren();
    this.details.hidden = true;
    this.setState("running");
    this.view.note(LOST);
    this.announce(LOST);
  }

  setState(state) {
    this.element.dataset.state = state;
    this.isWorking.hidden = state !== "running";
  }

  finish(event) {
    this.setState("over");
    this.text = this.view.lastText || event.output;
    const parts = [this.timeline.summary];
    if (event.usage) parts.push(`${counted(event.usage.input_tokens + event.usage.output_tokens, "token")}`);
    if (typeof event.usage?.cost === "number") parts.push(dollars(event.usage.cost));
    this.summary.append(el("span", {}, parts.join(" · ")));
    if (this.timeline.saved >= 0.001) this.summary.append(el("span", { class: "saved" }, `early start saved ${duration(this.timeline.saved)}`));
    this.details.hidden = false;
    this.drawTimeline();
  }

  drawTimeline() {
    if (this.details.open) this.table.replaceChildren(timelineTable(this.timeline), legend());
  }
}

function legend() {
  const kinds = { wait: "until the first byte", answer: "response", text: "text", arguments: "arguments of a call", tool: "tool", person: "waiting for a person" };
  return el("ul", { class: "legend", "aria-hidden": "true" }, ...Object.entries(kinds).map(([kind, words]) => el("li", {}, el("span", { class: `bar ${kind}` }), words)));
}
