"use strict";
// The page of the inspector. A row is a frame of the provider, with its events and what was sent on after it. Rows are plain
// objects in one array; only those in view are elements.
const $ = id => document.getElementById(id);
const base = location.pathname.replace(/\/+$/, "");
const ROW = 26, SPARE = 12, CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;
let quirks = {}, summaries = new Map(), shown = null, view = [], selected = -1, feed = null, isQueued = false, drawn = 0;

// -- fetching

const ALERT = "event: alert\ndata: ";

function headers() {
  const key = sessionStorage.getItem("penstock-key");
  return key ? { authorization: `Bearer ${key}` } : {};
}

async function get(path, signal) {
  for (;;) {
    const response = await fetch(base + path, { headers: headers(), signal });
    if (response.ok) return response;
    if (response.status !== 401) throw Object.assign(new Error(`${response.status}: ${await response.text()}`), { status: response.status });
    await new Promise(resolve => { $("login").addEventListener("close", resolve, { once: true }); if (!$("login").open) $("login").showModal(); });
    sessionStorage.setItem("penstock-key", $("key").value);
  }
}

// A feed of server-sent events whose data are lists. Returns whether it said that it has ended.
async function follow(path, signal, take) {
  const reader = (await get(path, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      if (block.startsWith("event: end")) return true;
      if (block.startsWith(ALERT)) showAlert(JSON.parse(block.slice(ALERT.length)));
      if (block.startsWith("data: ")) {
        take(JSON.parse(block.slice(6)));
        await new Promise(resolve => setTimeout(resolve)); // a long recording leaves time for the page
      }
    }
  }
}

function showAlert(text) {
  $("alert").textContent = text.replace(CONTROL, "·");
  $("alert").hidden = !text;
}

async function followAlways(path, signal, take) {
  for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 10000)) {
    try {
      if (await follow(path(), signal, take)) return true;
      pause = 500;
    } catch (error) {
      if (signal.aborted || error.status === 404) return false;
    }
    await new Promise(resolve => setTimeout(resolve, pause));
  }
}

// -- one exchange

class Exchange {
  constructor(id) {
    this.id = id;
    this.count = 0; // of entries
    this.rows = [];
    this.places = new Map(); // of rows, by frame
    this.requests = [];
    this.findings = new Map();
    this.lanes = new Map();
    this.hasSent = false;
    this.end = 0;
    this.isOver = false;
    this.state = "";
    this.cache = "";
    this.last = null; // frame
    this.lastSent = "";
  }

  add(entry) {
    this.count += 1;
    this.end = Math.max(this.end, entry.at);
    switch (entry.type) {
      case "asked": this.requests.push(["What the client asked for", entry]); break;
      case "request":
        this.requests.push(["What the provider was asked for", entry]);
        this.lane("connect", "connect", "wait").grow(entry.at, 0, this.rows.length);
        break;
      case "response":
        this.lane("connect", "connect", "wait").grow(entry.at, 1, this.rows.length);
        this.lane("first byte", "first byte", "wait").grow(entry.at, 0, this.rows.length);
        if (entry.status >= 400) this.note(entry.at, `HTTP status ${entry.status}`);
        break;
      case "frame":
        if (this.lanes.has("first byte") && this.lanes.get("first byte").samples.length < 2) this.lane("first byte").grow(entry.at, 1, this.rows.length);
        this.places.set(entry.frame, this.rows.length);
        this.rows.push({ at: entry.at, frame: entry.frame, name: entry.name, text: entry.text, same: this.same(entry), events: [], sent: [], odd: [], healed: [] });
        break;
      case "event": this.row(entry).events.push(entry.event); this.event(entry); break;
      case "sent": {
        this.hasSent = true;
        const row = this.row(entry);
        if (!row.sent.length) row.sameSent = repeated(this.lastSent, entry.text);
        row.sent.push(this.lastSent = entry.text);
        this.lane("sent", "sent on", "sent").grow(entry.at, entry.size, this.rows.length - 1);
        break;
      }
      case "odd": case "healed": this.row(entry)[entry.type].push(entry); this.find(entry); break;
      case "tool": {
        const lane = this.lane(`tool ${entry.id}`, `${entry.name} runs`, "tool");
        lane.isBad = entry.is_error;
        lane.grow(entry.begun, 0, this.rows.length - 1); lane.grow(entry.at, 1, this.rows.length - 1);
        break;
      }
      case "cache":
        this.cache = cacheText(entry);
        if (entry.is_changed) this.find({ type: "odd", quirk: 0, text: entry.text, frame: entry.frame });
        break;
      case "note": this.note(entry.at, entry.text); break;
      case "end": this.isOver = true; if (entry.text) this.note(entry.at, entry.text); break;
    }
  }

  same(entry) { // how many characters a frame repeats of the one before
    const before = this.last && this.last.name === entry.name ? this.last.text : "";
    this.last = entry;
    return repeated(before, entry.text);
  }

  note(at, text) {
    this.rows.push({ at, frame: 0, name: "!", text, same: 0, events: [], sent: [], odd: [{ quirk: 0, text }], healed: [] });
  }

  row(entry) { // that of its frame, or a row of its own for what came before the first frame
    if (this.places.has(entry.frame)) return this.rows[this.places.get(entry.frame)];
    if (!this.rows.length) this.rows.push({ at: entry.at, frame: 0, name: "", text: "", same: 0, events: [], sent: [], odd: [], healed: [] });
    return this.rows[this.rows.length - 1];
  }

  find(entry) {
    const key = `${entry.type} ${entry.quirk || entry.text}`;
    const finding = this.findings.get(key) || { ...entry, times: 0, row: this.rows.indexOf(this.row(entry)) };
    finding.times += entry.count || 1;
    this.findings.set(key, finding);
  }

  lane(key, label, kind) {
    if (!this.lanes.has(key)) this.lanes.set(key, new Lane(label, kind));
    return this.lanes.get(key);
  }

  event(entry) {
    const event = entry.event, at = entry.at, row = this.rows.length - 1;
    switch (event.type) {
      case "text": case "refusal": this.lane("text", "text", "text").grow(at, event.text.length, row); break;
      case "reasoning": this.lane("reasoning", "reasoning", "reasoning").grow(at, event.text.length, row); break;
      case "tool_call_start": this.lane(`call ${event.block}`, event.name || "call", "call").grow(at, 0, row); break;
      case "tool_call_delta": this.lane(`call ${event.block}`, "call", "call").grow(at, event.piece.length, row); break;
      case "tool_call_closed": this.lane(`call ${event.block}`, "call", "call").closed = { at, row }; break;
      case "tool_call": case "tool_call_invalid": {
        const lane = this.lane(`call ${event.block}`, event.name || "call", "call");
        lane.grow(at, lane.size ? 0 : (event.arguments_raw || "{}").length, row);
        if (event.type === "tool_call_invalid") lane.isBad = true;
        break;
      }
      case "finish": this.state = event.reason; break;
    }
  }
}

// How many characters of a text are those of another one, up to the start of a field.
function repeated(before, text) {
  let at = 0;
  while (at < before.length && at < 2000 && before[at] === text[at]) at += 1;
  while (at > 0 && text[at - 1] !== "{" && text[at - 1] !== ",") at -= 1;
  return at > 16 ? at : 0;
}

class Lane {
  constructor(label, kind) { this.label = label; this.kind = kind; this.size = 0; this.samples = []; this.closed = null; this.isBad = false; }

  grow(at, size, row) {
    this.size += size;
    const last = this.samples[this.samples.length - 1];
    if (last && last.at === at && last.row === row) last.size = this.size;
    else this.samples.push({ at, size: this.size, row });
  }
}

// -- the list of rows

function eventText(event) {
  switch (event.type) {
    case "text": case "reasoning": case "refusal": return quote(event.text);
    case "tool_call_start": return `call ${event.name}`;
    case "tool_call_delta": return event.piece;
    case "tool_call_closed": return "(closed)";
    case "tool_call": return `${event.name}(${event.arguments_raw || "{}"})`;
    case "tool_call_invalid": return `invalid ${event.name || "call"}: ${event.why}`;
    case "finish": return `finish ${event.reason}${event.raw_reason && event.raw_reason !== event.reason ? ` (${event.raw_reason})` : ""}`;
    case "usage": return `${event.input_tokens || 0} in, ${event.output_tokens || 0} out`;
    case "error": return `error ${event.code || ""} ${event.message}`;
    case "unknown": return `unknown ${event.note || ""}`;
    case "opaque": return `state ${event.kind}`;
    default: return event.type;
  }
}

const quote = text => `“${text.replace(/\n/g, " \\n ")}”`;
const line = text => text.slice(0, 400).replace(/\r?\n/g, " \\n ").replace(CONTROL, "·");
const time = seconds => seconds >= 10 ? `${seconds.toFixed(1)} s` : seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(seconds * 1000).toFixed(seconds < .1 ? 1 : 0)} ms`;
const tick = seconds => seconds === 0 ? "0" : seconds < 1 ? `${Math.round(seconds * 1e5) / 100} ms` : `${Math.round(seconds * 100) / 100} s`;

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function rowElement(row, place) {
  const mark = row.odd.length ? " odd" : row.healed.length ? " healed" : "";
  const made = element("div", { class: `row${mark}`, role: "row", "aria-rowindex": place + 1, "aria-selected": place === selected });
  made.style.top = `${place * ROW}px`;
  made.dataset.place = place;
  const frame = element("span", { class: "frame" });
  if (row.name) frame.append(element("i", {}, `${row.name} `));
  if (row.same) frame.append(element("s", { title: "as in the frame before" }, "… "));
  frame.append(line(row.text.slice(row.same)));
  const events = element("span", { class: "events" });
  row.events.forEach((event, at) => { if (at) events.append("  "); events.append(element("span", { class: `e-${event.type}` }, line(eventText(event)))); });
  const sent = element("span", { class: "sent" });
  if (row.sameSent) sent.append("… ");
  sent.append(line(row.sent.join("").slice(row.sameSent || 0, (row.sameSent || 0) + 800).replace(/^event: .*\ndata: /gm, "")));
  made.append(element("span", { class: "at" }, time(row.at)), frame, events, sent);
  return made;
}

function drawRows() {
  const list = $("list"), first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
  const last = Math.min(view.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
  $("rows").style.height = `${view.length * ROW}px`;
  const drawn = document.createDocumentFragment();
  for (let place = first; place < last; place += 1) drawn.append(rowElement(view[place], place));
  $("rows").replaceChildren(drawn);
}

function matches(row, words) {
  if ($("only-odd").ariaPressed === "true" && !row.odd.length && !row.healed.length) return false;
  if (!words) return true;
  return `${row.name} ${row.text} ${row.sent.join("")} ${row.events.map(event => `${event.type} ${eventText(event)}`).join(" ")}`.toLowerCase().includes(words);
}

function chooseRows() {
  const words = $("filter").value.toLowerCase(), isAll = !words && $("only-odd").ariaPressed !== "true";
  const row = view[selected];
  view = shown ? (isAll ? shown.rows : shown.rows.filter(one => matches(one, words))) : [];
  if (row && view[selected] !== row) selected = view.indexOf(row);
}

// -- the rest of the page

function draw() { // at most once per frame of the screen
  if (isQueued) return;
  isQueued = true;
  requestAnimationFrame(() => {
    isQueued = false;
    const list = $("list"), isAtEnd = list.scrollTop > 0 && list.scrollTop + list.clientHeight > list.scrollHeight - 2 * ROW;
    chooseRows();
    drawHead(); drawFindings(); drawRows();
    const now = performance.now();
    if (!shown || shown.isOver || now - drawn > 250) { drawn = now; drawWaterfall(); } // its cost grows with the exchange
    if (isAtEnd && shown && !shown.isOver) { list.scrollTop = list.scrollHeight; drawRows(); }
  });
}

function drawHead() {
  const summary = shown && summaries.get(shown.id);
  $("actions").hidden = !shown;
  $("live").hidden = !shown || shown.isOver;
  if (!shown || !summary) return;
  $("title").textContent = summary.model || summary.id;
  const facts = [summary.client_wire && summary.client_wire !== summary.wire ? `${summary.client_wire} to ${summary.wire}` : summary.wire,
    summary.status ? `status ${summary.status}` : "", `${shown.rows.length.toLocaleString()} frames`, bytes(summary.size), time(shown.end), shown.state, shown.cache];
  $("facts").replaceChildren(facts.filter(Boolean).join(" · "));
  $("columns").classList.toggle("unsent", !shown.hasSent);
}

function cacheText(entry) {
  const tokens = entry.total === null ? "" : entry.cached === null ? `${entry.total.toLocaleString()} input tokens` : `${entry.cached.toLocaleString()} of ${entry.total.toLocaleString()} input tokens cached`;
  return entry.is_changed ? tokens : [tokens, entry.text].filter(Boolean).join(": "); // a change is a finding
}

const bytes = size => size < 1000 ? `${size} B` : size < 1e6 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1e6).toFixed(1)} MB`;

function drawFindings() {
  const all = shown ? [...shown.findings.values()] : [], healed = new Set(all.filter(one => one.type === "healed").map(one => one.quirk));
  const findings = all.filter(one => one.type === "healed" || !healed.has(one.quirk));
  $("findings").hidden = !findings.length;
  if ($("findings").dataset.drawn === `${shown && shown.id} ${findings.map(one => one.times)}`) return;
  $("findings").dataset.drawn = `${shown && shown.id} ${findings.map(one => one.times)}`;
  $("findings").replaceChildren(...findings.map(finding => {
    const quirk = quirks[finding.quirk];
    const number = finding.quirk ? `#${finding.quirk}` : finding.type;
    const button = element("button", { class: finding.type, title: quirk ? quirk.does : finding.text },
      element("b", {}, number), element("span", {}, `${finding.text}${finding.times > 1 ? ` ×${finding.times}` : ""}`));
    button.onclick = () => { resetFilter(); chooseRows(); select(finding.row, true); };
    return button;
  }));
}

const ORDER = ["wait", "reasoning", "text", "call", "tool", "sent"];
const SVG = "http://www.w3.org/2000/svg", LANE = 20, LABEL = 116;
function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawWaterfall() {
  const lanes = shown ? [...shown.lanes.values()].filter(lane => lane.samples.length) : [];
  lanes.sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind));
  const width = $("waterfall").clientWidth - 32;
  if (!lanes.length || width < 80) { $("waterfall").replaceChildren(); return; }
  const label = width < 480 ? 78 : LABEL, isTimed = shown.end > 0;
  const span = isTimed ? shown.end : Math.max(1, shown.rows.length - 1);
  const x = sample => label + (width - label - 4) * Math.min(1, (isTimed ? sample.at : sample.row) / span);
  const height = lanes.length * LANE + 18;
  const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Timeline of the exchange" });
  const step = roundStep(span / (width < 480 ? 2.5 : 6));
  for (let at = 0; at <= span; at += step) {
    const left = x({ at, row: at });
    drawn.append(svg("line", { class: "grid", x1: left, x2: left, y1: 14, y2: height }),
      svg("text", { x: left, y: 10, "text-anchor": !at ? "start" : left > width - 24 ? "end" : "middle" }, isTimed ? tick(at) : `frame ${Math.round(at) + 1}`));
  }
  lanes.forEach((lane, place) => drawn.append(laneElement(lane, place, x, width, label)));
  if (view[selected]) {
    const left = x({ at: view[selected].at, row: shown.rows.indexOf(view[selected]) });
    drawn.append(svg("line", { class: "cursor", x1: left, x2: left, y1: 12, y2: height }));
  }
  $("waterfall").replaceChildren(drawn);
}

function roundStep(step) { // 1, 2 or 5 times a power of ten
  const power = 10 ** Math.floor(Math.log10(step));
  return power * ([1, 2, 5, 10].find(factor => factor * power >= step) || 10);
}

function laneElement(lane, place, x, width, label) {
  const top = 18 + place * LANE, bottom = top + LANE - 4, color = `var(--${lane.isBad ? "bad" : lane.kind})`;
  const group = svg("g", { class: "lane", tabindex: -1 });
  const first = lane.samples[0], last = lane.samples[lane.samples.length - 1];
  const letters = Math.floor((label - 8) / 6.2);
  const shownLabel = lane.label.length > letters ? `${lane.label.slice(0, letters - 1)}…` : lane.label;
  group.append(svg("rect", { class: "track", x: 0, y: top - 1, width, height: LANE - 2 }),
    svg("text", { class: "name", x: 0, y: bottom - 3 }, shownLabel),
    svg("rect", { class: lane.size > 1 ? "base" : "base flat", x: x(first), y: top, width: Math.max(2, x(last) - x(first)), height: LANE - 4, rx: 2, fill: color }));
  const step = Math.max(1, Math.floor(lane.samples.length / 300)), tall = LANE - 4;
  if (lane.size > 1 && lane.samples.length > 1) { // how it grew
    let path = `M${x(first)},${bottom}`;
    const add = sample => { path += `L${x(sample).toFixed(1)},${(bottom - tall * sample.size / lane.size).toFixed(1)}`; };
    for (let at = 0; at < lane.samples.length; at += step) add(lane.samples[at]);
    add(last);
    group.append(svg("path", { d: `${path}L${x(last)},${bottom}Z`, fill: color }));
  }
  if (lane.closed) group.append(svg("circle", { cx: x(lane.closed), cy: top + tall / 2, r: 3, fill: "var(--panel)", stroke: color, "stroke-width": 1.5 }));
  group.append(svg("title", {}, `${lane.label}: ${time(first.at)} to ${time(last.at)}`));
  group.addEventListener("click", () => { resetFilter(); chooseRows(); select(Math.max(0, first.row), false); });
  return group;
}

function listed() {
  const sorted = [...summaries.values()].sort((one, other) => one.began - other.began || 0);
  return sorted.some(one => !/^\d+$/.test(one.id)) ? sorted.reverse() : sorted; // live: the newest first
}

function drawExchanges() {
  $("exchanges").replaceChildren(...listed().map(summary => {
    const marks = element("span", { class: "marks" });
    if (summary.outcome && summary.outcome !== "complete") marks.append(element("span", { class: "badge bad" }, summary.outcome), " ");
    if (!summary.outcome) marks.append(element("span", { class: "badge" }, "live"), " ");
    if (summary.healed) marks.append(element("span", { class: "badge healed" }, `${summary.healed} healed`), " ");
    if (summary.odd) marks.append(element("span", { class: "badge odd" }, `${summary.odd} odd`));
    const name = summary.model.slice(summary.model.indexOf(":") + 1) || summary.id;
    const way = summary.client_wire && summary.client_wire !== summary.wire ? `${summary.client_wire} to ${summary.wire}` : summary.wire;
    const button = element("button", { "aria-current": shown !== null && shown.id === summary.id, title: summary.model },
      element("b", {}, name), element("small", {}, time(summary.seconds)), element("small", {}, way), marks);
    button.onclick = () => open(summary.id);
    return element("li", {}, button);
  }));
}

function open(id) {
  if (feed) feed.abort();
  feed = new AbortController();
  const exchange = shown = new Exchange(id), signal = feed.signal;
  selected = -1;
  $("list").scrollTop = 0;
  $("detail").hidden = true;
  $("side").classList.remove("open");
  $("menu").ariaExpanded = "false";
  location.replace(`#${encodeURIComponent(id)}`);
  $("export").href = `${base}/exchanges/${encodeURIComponent(id)}/recording`;
  drawExchanges();
  draw();
  followAlways(() => `/exchanges/${encodeURIComponent(id)}?after=${exchange.count}`, signal, entries => {
    for (const entry of entries) exchange.add(entry);
    if (shown === exchange) draw();
  });
}

// -- details

function pretty(text) {
  let value;
  try { value = JSON.stringify(JSON.parse(text), null, 2); } catch { return element("pre", {}, text.replace(CONTROL, "·")); }
  const made = element("pre", {});
  if (value.length > 60000) { made.textContent = value; return made; }
  const token = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)/g;
  let end = 0;
  for (const match of value.matchAll(token)) {
    made.append(value.slice(end, match.index));
    const kind = match[1] ? (match[2] ? "key" : "str") : match[3] ? "num" : "lit";
    made.append(element("span", { class: kind }, (match[1] || match[0]).replace(CONTROL, "·")));
    end = match.index + (match[1] || match[0]).length;
  }
  made.append(value.slice(end));
  return made;
}

function card(finding, kind) {
  const quirk = quirks[finding.quirk];
  const made = element("div", { class: `card ${kind}` }, element("b", {}, finding.quirk ? `#${finding.quirk} ${kind}` : kind), ` ${finding.text}`);
  if (quirk) made.append(element("p", {}, `Some servers send ${quirk.sends.replace(/`/g, "")}.`), element("p", {}, `Penstock: ${quirk.does.replace(/`/g, "")}.`), element("p", {}, element("small", {}, `Seen at: ${quirk.servers}`)));
  return made;
}

function showDetail(title, ...children) {
  $("detail-title").textContent = title;
  $("detail-body").replaceChildren(...children);
  $("detail-body").scrollTop = 0;
  $("detail").hidden = false;
}

function detail() {
  const row = view[selected];
  if (!row) return;
  const children = [...row.odd.map(one => card(one, "odd")), ...row.healed.map(one => card(one, "healed"))];
  if (row.text) children.push(element("h3", {}, row.name && row.name.length > 1 ? `Frame: ${row.name}` : "Frame"), pretty(row.text));
  if (row.events.length) children.push(element("h3", {}, "Events"), ...row.events.map(event => pretty(JSON.stringify(event))));
  if (row.sent.length) children.push(element("h3", {}, "Sent on"), element("pre", {}, row.sent.join("")));
  showDetail(`${row.frame ? `Frame ${row.frame}` : "Note"} at ${time(row.at)}`, ...children);
  drawRows();
}

function showRequest() {
  if (!shown) return;
  const children = shown.requests.flatMap(([title, entry]) => [element("h3", {}, `${title} (${entry.wire}${entry.url ? `, ${entry.url}` : ""})`), pretty(JSON.stringify(entry.body))]);
  showDetail("Request", ...(children.length ? children : [element("p", {}, "It is not known.")]));
}

function select(place, isOpen) {
  if (!view.length) return;
  selected = Math.max(0, Math.min(view.length - 1, place));
  const list = $("list"), top = selected * ROW;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  drawRows();
  drawWaterfall();
  if (isOpen || !$("detail").hidden) detail();
}

function nextOdd(direction) {
  for (let place = selected + direction; place >= 0 && place < view.length; place += direction)
    if (view[place].odd.length || view[place].healed.length) return select(place, true);
}

function resetFilter() { $("filter").value = ""; $("only-odd").ariaPressed = "false"; }

function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("toast").hidden = true; }, 2500);
}

async function copyVector() {
  const text = JSON.stringify(await (await get(`/exchanges/${encodeURIComponent(shown.id)}/vector`)).json(), null, 1);
  try { await navigator.clipboard.writeText(text); toast("The vector is in the clipboard"); }
  catch { showDetail("Vector", element("pre", {}, text)); }
}

function moveExchange(step) {
  const buttons = [...document.querySelectorAll("#exchanges button")];
  const next = buttons[buttons.findIndex(button => button.ariaCurrent === "true") + step];
  if (next) next.click();
}

function turnTheme() {
  const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("penstock-theme", document.documentElement.dataset.theme);
}

const KEYS = {
  ArrowDown: () => select(selected + 1), j: () => select(selected + 1), ArrowUp: () => select(selected - 1), k: () => select(selected - 1),
  Home: () => select(0), End: () => select(view.length - 1), PageDown: () => select(selected + page()), PageUp: () => select(selected - page()),
  Enter: () => detail(), o: () => nextOdd(1), O: () => nextOdd(-1), "[": () => moveExchange(-1), "]": () => moveExchange(1), r: showRequest,
  "/": () => $("filter").focus(), "?": () => $("keys").showModal(), Escape: () => { $("detail").hidden = true; $("list").focus(); },
};
const page = () => Math.max(1, Math.floor($("list").clientHeight / ROW) - 1);

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target === $("filter")) { if (event.key === "Escape" || event.key === "Enter") { event.preventDefault(); $("list").focus(); } return; }
  const isButton = event.target.closest("button, a") && (event.key === "Enter" || event.key === " ");
  if (!KEYS[event.key] || isButton) return;
  event.preventDefault();
  KEYS[event.key]();
});
$("list").addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
$("list").addEventListener("click", event => { const row = event.target.closest(".row"); if (row) select(Number(row.dataset.place), true); });
$("filter").addEventListener("input", draw);
$("only-odd").onclick = () => { $("only-odd").ariaPressed = String($("only-odd").ariaPressed !== "true"); draw(); };
$("theme").onclick = turnTheme;
$("help").onclick = () => $("keys").showModal();
$("close").onclick = () => { $("detail").hidden = true; drawWaterfall(); };
$("copy").onclick = copyVector;
$("show-request").onclick = showRequest;
$("menu").onclick = () => { $("menu").ariaExpanded = String($("side").classList.toggle("open")); };
for (const tab of document.querySelectorAll("#tabs button")) tab.onclick = () => {
  for (const one of document.querySelectorAll("#tabs button")) one.ariaSelected = String(one === tab);
  $("list").dataset.column = tab.dataset.column;
};
new ResizeObserver(draw).observe($("main"));
const theme = localStorage.getItem("penstock-theme");
if (theme) document.documentElement.dataset.theme = theme;

get("/quirks").then(response => response.json()).then(table => { quirks = table; draw(); });
followAlways(() => "/exchanges", new AbortController().signal, changed => {
  for (const summary of changed) summaries.set(summary.id, summary);
  drawExchanges();
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (!shown && summaries.size) open(summaries.has(wanted) ? wanted : listed()[0].id);
  else draw();
});
