"use strict";
// What a run asks a person: to approve a call, to answer a question, or to give the result of a call that runs elsewhere.

/** How long an answer may take to arrive in the run: a database that failed over may have lost it, so it can be given again. */
const CONFIRM_MS = 10_000;

/** The form for a request of a run. `send(path, body)` posts the answer; the form goes when the run says it was answered. */
function requestForm(event, send) {
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const form = el("form", { class: "ask" });
  const answer = async (path, body) => {
    show(problem, "");
    setDisabled(form, true);
    try {
      await send(path, { call_id: event.call_id, ...body });
      setTimeout(() => setDisabled(form, false), CONFIRM_MS);
    } catch (error) {
      setDisabled(form, false);
      show(problem, inWords(error));
    }
  };
  const parts = { approval: approvalParts, deferred: resultParts, input: questionParts }[event.kind](event, answer, form);
  form.append(...parts, problem);
  return form;
}

function setDisabled(form, isDisabled) {
  for (const control of form.elements) control.disabled = isDisabled;
}

const button = (label, kind, onclick) => el("button", { type: onclick ? "button" : "submit", class: kind, ...(onclick && { onclick }) }, label);

function onSubmit(form, run) {
  form.addEventListener("submit", event => { event.preventDefault(); run(); });
}

/** A control with its label above it. */
function labelled(text, control) {
  return el("label", {}, el("span", {}, text), control);
}

function approvalParts(event, answer, form) {
  const reason = el("input", { type: "text", autocomplete: "off", placeholder: "Reason (optional)", "aria-label": `Reason for the decision about ${event.name}` });
  const decide = approved => answer("decide", { approved, shown: event.shown, reason: reason.value.trim() });
  onSubmit(form, () => decide(true));
  return [
    ...sourceList(event.sources),
    el("p", {}, "This call runs only if you approve it, with the values above."),
    el("div", { class: "answers" }, button("Approve", ""), button("Decline", "quiet", () => decide(false)), reason),
  ];
}

const SOURCES = {
  user: () => "your message", tool: name => name ? `a result of ${name}` : "a result", file: name => name ? `the file ${name}` : "a file of yours",
  summary: () => "the summary of earlier messages", answer: () => "an earlier answer", call: name => `an earlier call of ${name}`,
};

/** Where the values of a call came from, one line per value that stands in the conversation. */
function sourceList(sources) {
  const lines = Object.entries(sources ?? {}).filter(([, found]) => Array.isArray(found) && found.length).map(([path, found]) => {
    const isForeign = found.some(({ kind }) => ["tool", "file", "summary"].includes(kind)) && !found.some(({ kind }) => ["user", "call"].includes(kind));
    const words = found.map(({ kind, name }) => SOURCES[kind]?.(name) ?? kind).join(", ");
    return el("li", { class: isForeign ? "foreign" : "" }, el("code", {}, path), ` from ${words}`);
  });
  return lines.length ? [el("ul", { class: "sources", "aria-label": "Where the values came from" }, ...lines)] : [];
}

function resultParts(event, answer, form) {
  const value = el("textarea", { rows: "2", required: true });
  const give = isError => answer("provide", { value: typedValue(value.value), is_error: isError });
  onSubmit(form, () => give(false));
  return [
    el("p", {}, "This call runs outside of the server. The run waits for its result."),
    labelled("Result (text or JSON)", value),
    el("div", { class: "answers" }, button("Send the result", ""), button("Report a failure", "quiet", () => give(true))),
  ];
}

function questionParts(event, answer, form) {
  const { message, schema, url, problem } = event.arguments ?? {};
  const fields = Object.entries(schema?.properties ?? {}).map(([name, type]) => new QuestionField(name, type, schema.required ?? []));
  const free = fields.length || url ? null : el("textarea", { rows: "2", required: true });
  onSubmit(form, () => {
    const given = fields.map(field => [field.name, field.value]).filter(([, value]) => value !== undefined);
    answer("provide", { value: free ? typedValue(free.value) : Object.fromEntries(given) });
  });
  const parts = [el("p", {}, message ?? "The tool asks a question.")];
  if (problem) parts.push(el("p", { class: "problem" }, readable(problem)));
  if (url) parts.push(el("p", { class: "address" }, url));
  parts.push(...fields.map(field => labelled(field.label, field.control)));
  if (free) parts.push(labelled("Answer (text or JSON)", free));
  const decline = () => answer("provide", { value: "The person declined to answer.", is_error: true });
  parts.push(el("div", { class: "answers" }, button(url ? "Done" : "Answer", ""), button("Decline", "quiet", decline)));
  return parts;
}

/** One field of a question's schema. */
class QuestionField {
  constructor(name, type, required) {
    this.name = name;
    this.type = type;
    this.label = (type.title ?? name) + (required.includes(name) ? "" : " (optional)");
    this.control = this.newControl(required.includes(name));
  }

  newControl(isRequired) {
    const { type, enum: choices, default: value = "" } = this.type;
    if (choices) return el("select", { required: isRequired }, ...choices.map(choice => el("option", { value: choice }, choice)));
    if (type === "boolean") return el("input", { type: "checkbox", checked: value === true });
    const kind = type === "number" || type === "integer" ? "number" : "text";
    return el("input", { type: kind, step: type === "number" ? "any" : undefined, required: isRequired, value: String(value), autocomplete: "off" });
  }

  get value() {
    if (this.control.type === "checkbox") return this.control.checked;
    if (this.control.value === "") return undefined;
    return this.control.type === "number" ? Number(this.control.value) : this.control.value;
  }
}
