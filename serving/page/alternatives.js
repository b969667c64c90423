/**
 * What else the model would say.
 */

import { element } from "./elements.js";
import { differences } from "./words.js";

/** The alternatives, the best first, each with its score and what it has that the best has not. */
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
