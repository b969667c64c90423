/**
 * The controls of words that translations keep: a list of terms, and a switch for URLs, numbers with units and the like.
 */

import { asItIs, Protection, readTerms } from "./protection.js";

/** The controls below the text. `changed` is called after every change. */
export class Keeping {
  constructor(root, changed) {
    [this.patterns, this.box, this.note] = ["#protect", "#terms", "#terms-note"].map((name) => root.querySelector(name));
    for (const control of [this.patterns, this.box]) control.addEventListener("input", changed);
  }

  /** Returns the text with placeholders, a `Hidden`. Without terms and with the switch off, the text stays as it is. */
  hide(text) {
    const { terms, wrong } = readTerms(this.box.value);
    this.note.hidden = !wrong;
    this.note.textContent = wrong ? `Line ${wrong} is left out: write apple = Apfel.` : "";
    const isKeeping = terms.size || this.patterns.checked;
    return isKeeping ? new Protection(terms, this.patterns.checked).hide(text) : asItIs(text);
  }
}
