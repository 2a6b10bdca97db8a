"use strict";
// The arguments of a call while they are written: each character of the JSON is read once.

const DIFFERENCE = /^--- .*\n\+\+\+ .*\n@@ /;
const LINE_KINDS = { "+": "added", "-": "removed", "@": "hunk" };
const ESCAPES = { n: "\n", t: "\t", r: "\r", b: "\b", f: "\f" };

/** Reads the top-level fields of a JSON object piece by piece, into a list of terms and values. */
class GrowingFields {
  constructor(list) {
    this.list = list;
    this.depth = 0;
    this.place = "before"; // before | key | colon | value | after
    this.isString = false; // inside of a string
    this.escape = ""; // an escape sequence that has begun
    this.key = "";
    this.node = null; // the text of the value that grows
    this.waiting = ""; // what goes into it at the end of the piece
  }

  feed(piece) {
    for (const character of piece) this.read(character);
    this.flush();
  }

  /** The arguments are complete: show them as they are. */
  set(fields) {
    this.list.replaceChildren();
    for (const [name, value] of Object.entries(fields)) {
      const text = readable(value);
      if (DIFFERENCE.test(text)) this.addDifference(name, text);
      else this.add(name).data = text;
    }
  }

  /** A unified difference, in the whole width, with colored lines. */
  addDifference(name, text) {
    const lines = text.split(/^/m).map((line, index) => el("span", { class: index < 2 ? "" : LINE_KINDS[line[0]] ?? "" }, line));
    this.list.append(el("div", { class: "difference" }, el("dt", {}, name), el("dd", {}, ...lines)));
  }

  add(name) {
    const node = document.createTextNode("");
    this.list.append(el("div", {}, el("dt", {}, name), el("dd", {}, node)));
    return node;
  }

  flush() {
    if (this.node !== null && this.waiting) this.node.appendData(this.waiting);
    this.waiting = "";
  }

  read(character) {
    if (this.isString) this.readString(character);
    else if (character === '"') this.openString();
    else if (this.depth > 1) this.readInside(character);
    else this.readTop(character);
  }

  readTop(character) {
    if (character === "{" && this.depth === 0) { this.depth = 1; this.place = "key"; }
    else if (character === ":" && this.place === "colon") { this.place = "value"; this.node = this.add(this.key); }
    else if (character === "," || character === "}") this.endValue();
    else if (this.place === "value" && (character === "{" || character === "[")) { this.depth += 1; this.waiting += character; }
    else if (this.place === "value" && character.trim()) this.waiting += character;
  }

  readInside(character) {
    if (character === "{" || character === "[") this.depth += 1;
    if (character === "}" || character === "]") this.depth -= 1;
    this.waiting += character;
  }

  endValue() {
    this.flush();
    this.node = null;
    this.place = "key";
  }

  openString() {
    this.isString = true;
    if (this.place === "key") this.key = "";
    if (this.depth > 1) this.waiting += '"';
  }

  readString(character) {
    if (this.escape) { this.readEscape(character); return; }
    if (character === "\\") this.escape = "\\";
    else if (character === '"') this.closeString();
    else this.put(character);
  }

  closeString() {
    this.isString = false;
    if (this.depth > 1) this.waiting += '"';
    else if (this.place === "key") this.place = "colon";
  }

  readEscape(character) {
    this.escape += character;
    if (this.depth > 1 && this.place === "value") {
      if (this.escape[1] !== "u" || this.escape.length === 6) { this.waiting += this.escape; this.escape = ""; }
    } else if (this.escape[1] !== "u") { this.put(ESCAPES[character] ?? character); this.escape = ""; }
    else if (this.escape.length === 6) { this.put(String.fromCharCode(parseInt(this.escape.slice(2), 16))); this.escape = ""; }
  }

  put(character) {
    if (this.depth === 1 && this.place === "key") this.key += character;
    else this.waiting += character;
  }
}
