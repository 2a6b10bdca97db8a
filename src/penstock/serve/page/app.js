"use strict";
// The page: which conversation it shows, the message box, signing in, and what is announced.

const NEWEST = 10; // answers that are loaded at first
const FRAME = 12; // milliseconds of work per frame
const RECENT = 20;
const NEAR = 120; // pixels from the end at which the page still scrolls along

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, "0")).join("");

/** What the browser keeps of earlier visits; nothing if it keeps nothing. */
const memory = {
  get(name, otherwise) {
    try { return JSON.parse(localStorage.getItem(`penstock.${name}`)) ?? otherwise; } catch { return otherwise; }
  },
  set(name, value) {
    try { localStorage.setItem(`penstock.${name}`, JSON.stringify(value)); } catch { /* a private window */ }
  },
};

/** Work that is done in frames, so that thousands of events do not stop the page. */
class FrameQueue {
  constructor() { this.jobs = []; this.isScheduled = false; }

  put(job) {
    this.jobs.push(job);
    this.schedule();
  }

  schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    const run = () => { this.isScheduled = false; this.work(); };
    if (document.hidden) setTimeout(run, 50);
    else requestAnimationFrame(run);
  }

  work() {
    const end = performance.now() + FRAME;
    const isAtEnd = isNearEnd();
    let done = 0;
    while (done < this.jobs.length && performance.now() < end) this.jobs[done++]();
    this.jobs.splice(0, done);
    if (isAtEnd) scrollTo({ top: document.documentElement.scrollHeight });
    showLatestButton();
    if (this.jobs.length) this.schedule();
  }
}

const isNearEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - NEAR;
const showLatestButton = () => { byId("latest").hidden = isNearEnd(); };

class Chat {
  constructor() {
    this.thread = "";
    this.answers = new Map(); // by run id, the oldest first
    this.queue = new FrameQueue();
    this.control = new AbortController();
    this.channel = "BroadcastChannel" in window ? new BroadcastChannel("penstock") : null;
  }

  get active() { return [...this.answers.values()].find(answer => answer.isActive) ?? null; }

  /** Shows the conversation that the address names. */
  async open() {
    this.control.abort();
    this.control = new AbortController();
    this.answers.clear();
    byId("transcript").replaceChildren();
    show(byId("problem"), "");
    this.thread = decodeURIComponent(location.hash.slice(1)) || newId();
    this.rows = [];
    await this.refresh();
    if (matchMedia("(pointer: fine)").matches) byId("prompt").focus();
  }

  /** Adds the answers of the conversation that are not here yet. */
  async refresh() {
    const thread = this.thread;
    try {
      const { runs } = location.hash ? await getJSON(`threads/${encodeURIComponent(thread)}`) : { runs: [] };
      if (thread !== this.thread) return;
      this.rows = runs.reverse();
      const newest = this.rows.slice(-NEWEST);
      for (const row of this.answers.size ? this.rows.slice(this.rows.findIndex(row => this.answers.has(row.id))) : newest) this.join(row);
    } catch (error) {
      if (error.status !== 404) this.fail(error);
    }
    this.changed();
  }

  /** Adds the answers before those that are shown. */
  async showEarlier() {
    const first = this.rows.findIndex(row => this.answers.has(row.id));
    const before = byId("transcript").firstChild;
    const added = this.rows.slice(Math.max(0, first - NEWEST), first).map(row => this.newAnswer(row));
    for (const answer of added) byId("transcript").insertBefore(answer.element, before);
    this.answers = new Map([...added.map(answer => [answer.runId, answer]), ...this.answers]);
    for (const answer of added) this.read(answer);
    this.changed();
  }

  newAnswer({ id, agent, prompt, state }) {
    return new Answer({ id, agent, prompt, state, announce: words => this.announce(id, words) });
  }

  join(row) {
    if (this.answers.has(row.id)) return;
    const answer = this.newAnswer(row);
    this.answers.set(row.id, answer);
    byId("transcript").append(answer.element);
    this.read(answer, row.state !== "over");
  }

  /** Follows a run until its end. */
  async read(answer, isLive = false) {
    const { signal } = this.control;
    answer.isLive = isLive;
    try {
      await follow(answer.runId, {
        signal,
        onEvents: events => this.queue.put(() => { if (!signal.aborted) this.add(answer, events); }),
        onState: state => { answer.connection = state; this.changed(); },
      });
    } catch (error) {
      if (!signal.aborted) this.lost(answer, error);
    }
  }

  add(answer, events) {
    const wasOver = answer.isOver;
    answer.add(events);
    if (answer.isOver && !wasOver && answer.isLive) this.announce(answer.runId, answer.text ? `Answer: ${answer.text}` : "The answer has ended");
    this.changed();
  }

  /** The connection could not be continued: a person may try again. */
  lost(answer, error) {
    if (error.status === 401) { this.fail(error); return; }
    const last = answer.view.step;
    const note = el("p", { class: "note problem" }, `${inWords(error)} `);
    note.append(el("button", { type: "button", class: "quiet", onclick: () => { note.remove(); this.reload(); } }, "Reconnect"));
    last.append(note);
    answer.connection = "lost";
    this.changed();
  }

  reload() { return this.open(); }

  async send() {
    const box = byId("prompt"), prompt = box.value.trim();
    if (!prompt) return;
    show(byId("problem"), "");
    box.value = "";
    grow(box);
    try {
      if (this.active) await postJSON(`runs/${this.active.runId}/say`, { message: prompt, key: newId() });
      else await this.start(prompt);
    } catch (error) {
      if (!box.value) { box.value = prompt; grow(box); }
      this.fail(error);
      if (error.code === "thread_busy") await this.refresh();
    }
  }

  async start(prompt) {
    const agent = byId("agents").value;
    const { id } = await postJSON("runs", { prompt, agent, thread: this.thread });
    if (!location.hash) history.replaceState(null, "", `#${this.thread}`);
    remember(this.thread, prompt);
    const row = { id, agent, prompt, state: "running" };
    this.rows.push(row);
    this.join(row);
    this.channel?.postMessage(this.thread);
    scrollTo({ top: document.documentElement.scrollHeight });
  }

  async stop() {
    const answer = this.active;
    if (!answer) return;
    byId("stop").disabled = true;
    try { await postJSON(`runs/${answer.runId}/cancel`); } catch (error) { this.fail(error); }
    byId("stop").disabled = false;
    byId("prompt").focus();
  }

  fail(error) {
    if (error.status === 401) openSignIn();
    else show(byId("problem"), inWords(error));
  }

  announce(id, words) { if (this.answers.get(id)?.isLive) byId("announcer").textContent = words; }

  /** Something has changed: the buttons and the line below the message box. */
  changed() {
    const { active } = this;
    byId("empty").hidden = this.answers.size > 0;
    byId("earlier").hidden = !this.answers.size || this.answers.has(this.rows[0]?.id);
    byId("stop").hidden = !active;
    byId("send").textContent = active ? "Add" : "Send";
    byId("prompt").placeholder = active ? "Add a message" : "Write a message";
    const words = { reconnecting: "Reconnecting…", lost: "Disconnected" }[active?.connection];
    byId("state").textContent = words ?? (active ? { running: "Answering…", waiting: "Waiting for you" }[active.element.dataset.state] : "");
    byId("state").dataset.state = active?.connection ?? "";
  }
}

function remember(id, title) {
  const others = memory.get("recent", []).filter(item => item.id !== id);
  const known = memory.get("recent", []).find(item => item.id === id);
  memory.set("recent", [known ?? { id, title: title.slice(0, 80) }, ...others].slice(0, RECENT));
  showRecent();
}

function showRecent() {
  const items = memory.get("recent", []);
  byId("recent-list").replaceChildren(...items.map(({ id, title }) => el("li", {}, el("a", { href: `#${encodeURIComponent(id)}` }, title))));
  byId("recent").hidden = !items.length;
}

/** A message box as high as its text, up to a limit that the style sheet sets. */
function grow(box) {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

function openSignIn() {
  const dialog = byId("sign-in");
  if (!dialog.open) dialog.showModal();
}

async function signIn() {
  const token = byId("token"), problem = byId("sign-in-problem");
  show(problem, "");
  try {
    await postJSON("session", {}, { headers: { authorization: `Bearer ${token.value}` } });
    token.value = "";
    byId("sign-in").close();
    await begin();
  } catch (error) {
    show(problem, error.status === 401 ? "This is not the token of the server." : inWords(error));
    token.select();
  }
}

async function loadAgents() {
  const { data } = await getJSON("v1/models");
  const box = byId("agents"), last = memory.get("agent", "");
  box.replaceChildren(...data.map(({ id }) => el("option", { value: id, selected: id === last }, id)));
  byId("empty-agent").textContent = box.value;
}

const chat = new Chat();

async function begin() {
  try {
    await loadAgents();
    await chat.open();
  } catch (error) {
    chat.fail(error);
  }
}

function listen() {
  const box = byId("prompt");
  const submit = run => event => { event.preventDefault(); run(); };
  byId("form").addEventListener("submit", submit(() => chat.send()));
  byId("sign-in-form").addEventListener("submit", submit(signIn));
  byId("sign-in").addEventListener("cancel", event => event.preventDefault());
  byId("stop").addEventListener("click", () => chat.stop());
  byId("earlier").addEventListener("click", () => chat.showEarlier());
  byId("latest").addEventListener("click", () => scrollTo({ top: document.documentElement.scrollHeight }));
  byId("new").addEventListener("click", () => { history.pushState(null, "", location.pathname); chat.open(); });
  byId("agents").addEventListener("change", event => {
    memory.set("agent", event.target.value);
    byId("empty-agent").textContent = event.target.value;
  });
  byId("recent-list").addEventListener("click", () => { byId("recent").open = false; });
  box.addEventListener("input", () => grow(box));
  box.addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); chat.send(); }
  });
  addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    if (byId("recent").open) byId("recent").open = false;
    else if (!byId("sign-in").open) chat.stop();
  });
  addEventListener("hashchange", () => chat.open());
  addEventListener("popstate", () => { if (!location.hash) chat.open(); });
  addEventListener("scroll", showLatestButton, { passive: true });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && chat.thread && !chat.active) chat.refresh(); });
  document.addEventListener("click", event => { if (!byId("recent").contains(event.target)) byId("recent").open = false; });
  chat.channel?.addEventListener("message", event => { if (event.data === chat.thread) chat.refresh(); });
}

listen();
showRecent();
begin();
