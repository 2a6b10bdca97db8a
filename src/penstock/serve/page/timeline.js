"use strict";
// When each request, text, call and tool of an answer began and ended, and what the early start saved.

const WAITS_FOR = { read: ["effect", "alone"], effect: ["read", "alone"], alone: ["read", "effect", "alone"], free: [] };

/** When the last of these tools would have ended, had all started at the end of the response, in the order of the calls. */
function lateEnd(tools, responseEnd) {
  const ends = {};
  for (const { order, begin, end } of [...tools].sort((one, other) => one.begin - other.begin)) {
    const late = Math.max(responseEnd, begin, ...WAITS_FOR[order].map(before => ends[before] ?? 0)) + end - begin;
    ends[order] = Math.max(ends[order] ?? 0, late);
  }
  return Math.max(...Object.values(ends));
}

/** Collects the times of an answer. Times are those of the server's log, in seconds; those of a tool are its own. */
class Timeline {
  constructor() {
    this.begin = null;
    this.end = 0;
    this.rows = [];
    this.steps = new Map(); // the step under way, by path
    this.calls = new Map(); // the row of each call, by id
    this.blocks = new Map(); // the row of each call that is being written, by path and block
    this.allSteps = []; // of the run itself
  }

  get seconds() { return this.begin === null ? 0 : this.end - this.begin; }
  get requests() { return this.allSteps.length; }
  get tools() { return this.rows.filter(row => row.spans.some(span => span.kind === "tool")).length; }

  /** How much later the next requests would have been sent, had each tool started at the end of its response. */
  get saved() {
    let saved = 0;
    for (const { end, tools } of this.allSteps) {
      const ended = tools.filter(tool => tool.end !== null && !tool.isDiscarded);
      if (end === null || !ended.some(tool => tool.isEarly)) continue;
      saved += Math.max(0, lateEnd(ended, end) - Math.max(end, ...ended.map(tool => tool.end)));
    }
    return saved;
  }

  add(event, at, path = []) {
    this.begin ??= at;
    this.end = Math.max(this.end, at);
    const key = path.join("/");
    const step = this.steps.get(key);
    switch (event.type) {
      case "step_start": this.startStep(event, at, path, key); break;
      case "text": case "reasoning": case "refusal": this.addText(step, event.type, at, path); break;
      case "tool_call_start": this.addText(step, "", at, path); this.openCall(event, at, path, key); break;
      case "tool_call": case "tool_call_invalid": this.closeCall(event, at, path, key); break;
      case "tool_start": this.startTool(event, at, path, step); break;
      case "tool_end": this.endTool(event, at); break;
      case "approval_request": this.open(this.row(event.call_id, event.name, path), "person", at); break;
      case "decision": this.close(this.calls.get(event.call_id), at); break;
      case "step_end": if (step) { step.end = at; this.close(step.row, at); } break;
      case "done": for (const row of this.rows) if (!path.length) this.close(row, at); break;
    }
  }

  startStep({ step }, at, path, key) {
    const row = this.newRow(`Request ${step}`, path);
    const state = { row, begin: at, end: null, tools: [], isSilent: true, texts: {} };
    this.open(row, "wait", at);
    this.steps.set(key, state);
    if (!path.length) this.allSteps.push(state);
  }

  addText(step, kind, at, path) {
    if (!step) return;
    if (step.isSilent) { step.isSilent = false; this.close(step.row, at); this.open(step.row, "answer", at); }
    if (!kind) return;
    const row = step.texts[kind] ??= this.newRow(kind === "reasoning" ? "Thinking" : "Text", path);
    if (!row.spans.length) row.spans.push({ kind: "text", begin: at, end: at });
    row.spans[0].end = at;
  }

  openCall(event, at, path, key) {
    const row = this.row(event.id, event.name, path);
    this.blocks.set(`${key}#${event.block}`, row);
    this.open(row, "arguments", at);
  }

  closeCall(event, at, path, key) {
    const row = this.blocks.get(`${key}#${event.block}`) ?? (event.id ? this.row(event.id, event.name, path) : null);
    if (event.type === "tool_call" && row?.tool?.end === null) return; // its tool has started early, and runs on
    this.close(row, at);
  }

  startTool(event, at, path, step) {
    const row = this.row(event.call_id, event.name, path);
    this.close(row, at);
    this.open(row, "tool", at, event.is_early);
    const tool = { begin: at, end: null, isEarly: event.is_early, isDiscarded: false, order: event.order in WAITS_FOR ? event.order : "effect" };
    row.tool = tool;
    step?.tools.push(tool);
  }

  endTool(event, at) {
    const row = this.calls.get(event.call_id);
    const tool = row?.tool;
    if (!tool || tool.end !== null) { this.close(row, at); return; }
    tool.isDiscarded = event.ending === "discarded";
    tool.end = at;
    if (typeof event.seconds === "number") { // its end is reported later, when its call is confirmed
      tool.begin = Math.min(Math.max(tool.begin, event.started), Math.max(tool.begin, at - event.seconds)); // clocks may differ
      tool.end = Math.min(tool.begin + event.seconds, at);
      row.spans.at(-1).begin = tool.begin;
    }
    this.close(row, tool.end);
  }

  row(id, name, path) {
    if (!this.calls.has(id)) this.calls.set(id, this.newRow(name, path));
    return this.calls.get(id);
  }

  newRow(label, path) {
    const row = { label, depth: path.length, spans: [], tool: null };
    this.rows.push(row);
    return row;
  }

  open(row, kind, at, isEarly = false) { row.spans.push({ kind, begin: at, end: null, isEarly }); }

  close(row, at) {
    const last = row?.spans.at(-1);
    if (last && last.end === null) last.end = at;
  }

  /** In one line. */
  get summary() {
    const parts = [duration(this.seconds), counted(this.requests, "request")];
    if (this.tools) parts.push(counted(this.tools, "tool"));
    return parts.join(" · ");
  }
}

const SPANS = { wait: "until the first byte", answer: "response", text: "streaming", arguments: "arguments", tool: "running", person: "waiting for an answer" };
const MAX_ROWS = 200;

/** The times as a table: a row each, with bars for the eye and numbers for everybody. */
function timelineTable(timeline) {
  const scale = Math.max(timeline.seconds, 0.001);
  const body = el("tbody");
  for (const row of timeline.rows.slice(0, MAX_ROWS)) {
    const track = el("div", { class: "track", "aria-hidden": "true" });
    const words = [];
    for (const span of row.spans) {
      const end = span.end ?? timeline.end;
      const bar = el("span", { class: `bar ${span.kind}${span.isEarly ? " is-early" : ""}`, title: `${SPANS[span.kind]}: ${duration(end - span.begin)}` });
      bar.style.left = `${100 * (span.begin - timeline.begin) / scale}%`;
      bar.style.width = `${100 * (end - span.begin) / scale}%`;
      track.append(bar);
      words.push(`${SPANS[span.kind]}${span.isEarly ? " (early)" : ""} ${duration(end - span.begin)}`);
    }
    const label = el("th", { scope: "row" }, row.label);
    label.style.paddingInlineStart = `${row.depth}rem`;
    body.append(el("tr", {}, label, el("td", {}, track, el("span", { class: "numbers" }, words.join(", ")))));
  }
  const rest = timeline.rows.length - MAX_ROWS;
  const caption = rest > 0 ? `The first ${MAX_ROWS} of ${timeline.rows.length} rows` : "When each part began and how long it took";
  const head = el("thead", { class: "hidden" }, el("tr", {}, el("th", { scope: "col" }, "Part"), el("th", { scope: "col" }, "Times")));
  const columns = el("colgroup", {}, el("col", { class: "names" }), el("col"));
  return el("table", {}, el("caption", { class: rest > 0 ? "" : "hidden" }, caption), columns, head, body);
}
