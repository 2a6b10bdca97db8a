"use strict";
// Elements and words. What a model, a tool or a person wrote becomes text nodes only, never markup.

/** An element with attributes and children; strings become text. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const byId = id => document.getElementById(id);

/** Shows a text in an element, which is hidden while there is none. */
function show(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

/** An amount of money for people, with two decimals or three significant digits: `$1.25`, `$0.00231`. */
function dollars(amount) {
  const decimals = amount >= 1 || amount === 0 ? 2 : Math.min(2 - Math.floor(Math.log10(amount)), 12);
  return `$${amount.toFixed(decimals)}`;
}

/** A duration for people: `340 ms`, `2.4 s`, `1 min 5 s`. */
function duration(seconds) {
  if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** Words of the server as a sentence. */
const sentence = words => words.charAt(0).toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");

/** A value as a person reads it: text as it is, everything else as JSON. */
const readable = value => typeof value === "string" ? value : JSON.stringify(value, null, 2);

/** What a person typed, as JSON if it is JSON. */
function typedValue(text) {
  try { return JSON.parse(text); } catch { return text; }
}

const PARAGRAPH = 4000; // characters; a browser lays out only the last paragraph again when text is added

/** Text that grows at its end, in paragraphs, so that each piece costs what it adds. */
class GrowingText {
  constructor(parent) {
    this.parent = parent;
    this.node = null;
    this.text = "";
  }

  append(piece) {
    this.text += piece;
    const pieces = piece.split(/(?<=\n)/);
    for (const line of pieces) {
      const isBreak = this.node !== null && line === "\n" && this.node.data.endsWith("\n");
      if (isBreak) { this.trim(); this.node = null; continue; }
      if (this.node === null && line.trim() === "") continue;
      if (this.node === null || this.node.length > PARAGRAPH) this.begin();
      this.node.appendData(line);
    }
  }

  begin() {
    this.node = document.createTextNode("");
    this.parent.append(el("p", {}, this.node));
  }

  trim() { this.node.data = this.node.data.replace(/\s+$/, ""); }
}
