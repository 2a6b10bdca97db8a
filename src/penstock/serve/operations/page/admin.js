"use strict";
// The page of an operator. It asks its server again and again, and shows names and times as text only.

const STATES = ["ready", "running", "waiting", "parked", "damaged"];
const ALARMS = ["parked", "damaged"];
const SUMMARY_PAUSE = 3000, RUN_PAUSE = 2000; // milliseconds between two requests
let shownRun = "", isSignedIn = false;

/** A long duration for people: `4 hours`, `12 days`. */
const span = seconds => (seconds < 7200 ? duration(seconds) : seconds < 172_800 ? counted(Math.floor(seconds / 3600), "hour") : counted(Math.floor(seconds / 86_400), "day"));
/** How long ago a time was; the clock of this machine may differ from that of the server. */
const ago = (at, now = Date.now() / 1000) => (at ? `${span(Math.max(0, now - at))} ago` : "");
const badge = state => el("span", { class: "badge", "data-state": state }, state);
const cell = (label, value, attributes = {}) => el("td", { "data-label": label, ...attributes }, value);
const facts = pairs => pairs.filter(([, value]) => value !== "").map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));

function bytes(size) {
  const unit = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([limit]) => size >= limit);
  return unit ? `${(size / unit[0]).toFixed(1)} ${unit[1]}` : `${size} bytes`;
}

/** Carries out a request, and shows what went wrong; returns undefined then. */
async function attempt(work, place = "problem") {
  try {
    const result = await work();
    show(byId(place), "");
    return result;
  } catch (error) {
    if (error instanceof ServerError && error.status === 401) signIn();
    else show(byId(place), inWords(error));
    return undefined;
  }
}

function showSummary({ counts, workers, size }) {
  byId("states").replaceChildren(...STATES.map(state => {
    const number = counts.runs[state] ?? 0;
    const isAlarm = ALARMS.includes(state) && number > 0;
    const choose = () => { byId("state").value = state; listRuns(); byId("runs").focus(); };
    return el("li", {}, el("button", { type: "button", "data-state": state, "data-alarm": String(isAlarm), onclick: choose },
      el("strong", {}, number.toLocaleString("en")), state));
  }));
  const ready = Object.entries(counts.ready).map(([agent, count]) => `${agent}: ${count.toLocaleString("en")}`).join(", ");
  byId("facts").replaceChildren(...facts([
    ["First in the queue waits for", counts.runs.ready ? span(counts.oldest_ready) : "nobody waits"],
    ["Queue by agent", ready || "empty"],
    ["Lost their owner", counted(counts.expired, "run")],
    ["Alive", counts.workers === 1 ? "1 process" : `${counts.workers} processes`],
    ["Size of the log", bytes(size)],
  ]));
  byId("workers").tBodies[0].replaceChildren(...workers.map(worker => el("tr", {},
    cell("Process", worker.owner), cell("Kind", worker.kind), cell("Runs", String(worker.runs), { class: "number" }),
    cell("Agents", worker.agents.join(", ") || "unknown"),
    cell("Sign of life", el("span", {}, badge(worker.is_alive ? "alive" : "gone"), ` ${ago(worker.seen)}`)))));
  if (!workers.length) byId("workers").tBodies[0].append(el("tr", {}, el("td", { colspan: 5 }, "Nobody drives runs of this log.")));
  byId("updated").textContent = `Updated ${new Date().toLocaleTimeString()}`;
}

async function listRuns() {
  const query = new URLSearchParams();
  for (const name of ["state", "agent", "tenant", "prefix"]) if (byId(name).value.trim()) query.set(name, byId(name).value.trim());
  const found = await attempt(() => getJSON(`api/runs?${query}`));
  if (!found) return;
  byId("list").tBodies[0].replaceChildren(...found.runs.map(run => el("tr", {},
    cell("Run", el("button", { type: "button", class: "link", onclick: () => openRun(run.id) }, run.id)),
    cell("State", badge(run.state)), cell("Agent", run.agent), cell("Tenant", run.tenant),
    cell("Events", run.seq.toLocaleString("en"), { class: "number" }), cell("Last event", ago(run.updated)))));
  if (!found.runs.length) byId("list").tBodies[0].append(el("tr", {}, el("td", { colspan: 6 }, "No such runs.")));
  show(byId("more"), found.has_more ? `These are the newest ${found.runs.length}. Narrow the list down to see others.` : "");
}

async function openRun(id) {
  shownRun = id;
  await showRun();
  byId("run").focus();
  byId("run").scrollIntoView({ block: "start" });
}

async function showRun() {
  const id = shownRun;
  const found = await attempt(() => getJSON(`api/runs/${encodeURIComponent(id)}`), "problem");
  if (!found || id !== shownRun) return;
  const { run, timeline } = found;
  byId("run").hidden = false;
  byId("run-title").replaceChildren(run.id, " ", badge(run.state));
  byId("run-facts").replaceChildren(...facts([
    ["Agent", run.agent], ["Tenant", run.tenant], ["Thread", run.thread], ["Owner", run.owner], ["Owners so far", String(run.epoch)],
    ["Started", `${new Date(run.created * 1000).toLocaleString()}`], ["Last event", ago(run.updated)],
    ["Workers lost in this step", run.lost ? String(run.lost) : ""], ["Damage", timeline.damage],
  ]));
  byId("cancel").hidden = run.state === "over";
  byId("retry").hidden = !ALARMS.includes(run.state);
  show(byId("run-note"), timeline.left_out ? `Earlier entries that are left out: ${timeline.left_out.toLocaleString("en")}` : "");
  byId("timeline").replaceChildren(...timeline.entries.map(entry => {
    const lasted = entry.until - entry.at;
    const pieces = entry.count > 1 ? `${counted(entry.count, "event")}, ${duration(lasted)}` : "";
    return el("li", { "data-bad": String(["error", "tool_call_invalid"].includes(entry.type)) },
      el("span", { class: "time" }, `+${span(Math.max(0, entry.at - run.created))}`),
      el("span", { class: "type" }, `${"· ".repeat(entry.depth)}${entry.type}`), el("span", { class: "text" }, entry.text || pieces));
  }));
}

/** Asks a person; resolves to whether the answer is yes. */
function ask(title, text) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function change(verb, title, text) {
  const id = shownRun;
  if (!await ask(title, text)) return;
  await attempt(() => postJSON(`api/runs/${encodeURIComponent(id)}/${verb}`), "run-problem");
  await Promise.all([showRun(), listRuns(), refresh()]);
}

function signIn() {
  if (!byId("sign-in").open) byId("sign-in").showModal();
}

async function refresh() {
  if (byId("sign-in").open) return;
  const summary = await attempt(() => getJSON("api/summary"));
  if (!summary) return;
  if (!isSignedIn) { isSignedIn = true; byId("sign-out").hidden = false; listRuns(); }
  showSummary(summary);
}

/** Does something again and again, while the page is looked at. */
async function repeat(work, milliseconds) {
  for (;;) {
    if (!document.hidden) await work();
    await new Promise(resolve => setTimeout(resolve, milliseconds));
  }
}

byId("filter").addEventListener("submit", event => { event.preventDefault(); listRuns(); });
byId("close").addEventListener("click", () => { shownRun = ""; byId("run").hidden = true; byId("runs").focus(); });
byId("cancel").addEventListener("click", () => change("cancel", "Cancel this run?", "It ends, and its calls do not run. This cannot be undone."));
byId("retry").addEventListener("click", () => change("retry", "Retry this run?", "A worker continues it. Do this after the cause was removed."));
byId("sign-in").addEventListener("cancel", event => event.preventDefault());
byId("sign-in-form").addEventListener("submit", async event => {
  event.preventDefault();
  try {
    await request("POST", "session", {}, { headers: { authorization: `Bearer ${byId("token").value}` } });
  } catch (error) {
    show(byId("sign-in-problem"), error.status === 401 ? "This is not the token of operators." : inWords(error));
    return;
  }
  byId("token").value = "";
  show(byId("sign-in-problem"), "");
  byId("sign-in").close();
  refresh();
});
byId("sign-out").addEventListener("click", async () => { await attempt(() => request("DELETE", "session")); location.reload(); });
repeat(refresh, SUMMARY_PAUSE);
repeat(async () => { if (shownRun && !byId("run").hidden && !byId("confirm").open) await showRun(); }, RUN_PAUSE);
