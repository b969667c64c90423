/**
 * Text and translation as words that a user can point at.
 *
 * All views identify a word by its number. An explanation comes from `explanationOf`, or is null if the model gives
 * none.
 */

import { looksAt } from "./details.js";
import { element, percent, shade } from "./elements.js";
import { rove } from "./roving.js";
import { runsOf } from "./words.js";

/**
 * A text as spans of words, with the text between the words. `words` holds the element of each word, or null if the
 * text lacks the word.
 */
class Text {
  constructor(root) {
    this.root = root;
    this.words = [];
  }

  show(text, words, span) {
    this.words = words.map(() => null);
    const runs = runsOf(text, words).map((run) => {
      if (run.word === null) return run.text;
      this.words[run.word] = span(run);
      return this.words[run.word];
    });
    this.root.replaceChildren(...runs);
  }

  /** Shades every word by its weight, and marks one word. */
  light(weights, pointed) {
    this.words.forEach((word, number) => {
      if (!word) return;
      shade(word, weights ? weights[number] : null);
      word.classList.toggle("pointed", number === pointed);
    });
  }
}

/** The source's words, exactly behind the box. */
export class SourceWords {
  constructor(root) {
    this.text = new Text(root);
  }

  show(text, explanation) {
    this.explanation = explanation;
    this.text.show(text, explanation?.source ?? [], (run) => element("span", {}, run.text));
    this.text.root.append("\u200b"); // gives an empty last line the same height as in the box
  }

  point(target, source) {
    this.text.light(target === null ? null : this.explanation?.weights[target], source);
  }
}

/** The translation's words, each shaded by its doubt: a list with arrow keys. */
export class TargetWords {
  constructor(root) {
    this.text = new Text(root);
    rove(root, () => [this.found]);
  }

  get found() {
    return this.text.words.filter(Boolean);
  }

  show(text, explanation) {
    this.explanation = explanation;
    this.text.show(text, explanation?.target ?? [], (run) => this.word(run));
    this.found[0]?.setAttribute("tabindex", 0);
  }

  word({ text, word }) {
    const probability = this.explanation.probabilities[word];
    const label = `${text}, probability ${percent(probability)}, ${looksAt(this.explanation, word)}`;
    const attributes = { role: "option", tabindex: -1, class: "word", "aria-label": label, "aria-selected": false };
    const made = element("span", { ...attributes, "data-target": word, "data-number": percent(probability) }, text);
    made.classList.toggle("unlikely", probability < 0.5);
    made.style.setProperty("--doubt", 1 - probability);
    return made;
  }

  focus(word) {
    (this.text.words[word] ?? this.found[0])?.focus();
  }

  point(target, source) {
    const isColumn = target === null && source !== null;
    this.text.light(isColumn ? this.explanation.weights.map((row) => row[source]) : null, target);
    this.found.forEach((word) => word.setAttribute("aria-selected", word.classList.contains("pointed")));
  }
}
