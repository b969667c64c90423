/**
 * The alternative translations.
 */

import { element } from "./elements.js";
import { differences } from "./words.js";

/** The list of alternatives, best first. Shows each score, and marks the words that the best translation lacks. */
export class Alternatives {
  constructor(section) {
    this.section = section;
    this.list = section.querySelector("ol");
  }

  show(translations) {
    const different = translations.filter((one, place) => translations.findIndex((x) => x.text === one.text) === place);
    this.section.hidden = different.length < 2;
    this.list.replaceChildren(...different.map((one) => this.item(one, translations[0])));
  }

  item({ text, score }, best) {
    const runs = differences(text, best.text).map((run) => (run.isNew ? element("ins", {}, run.text) : run.text));
    const bar = element("span", { class: "bar", "aria-hidden": true });
    bar.style.setProperty("--weight", Math.exp(Math.min(0, score)));
    const number = element("span", { class: "score" }, `${score.toFixed(2).replace("-", "−")}`);
    return element("li", {}, element("span", { class: "text", dir: "auto", lang: "" }, ...runs), bar, number);
  }
}
