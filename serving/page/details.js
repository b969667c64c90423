/**
 * What the reader points at, in words.
 */

import { percent } from "./elements.js";

const MOST = 3; // words that are named
const FAINTEST = 0.05; // of the weights that are named

/** The line that says in words what is pointed at. */
export class Details {
  constructor(root) {
    this.root = root;
  }

  show(text, explanation) {
    this.explanation = explanation;
  }

  point(target, source) {
    this.root.textContent = this.explanation?.target.length ? this.sentence(target, source) : "";
  }

  sentence(target, source) {
    const { source: from, target: to, probabilities, weights } = this.explanation;
    if (target === null && source === null) return "Point at a word to see where it comes from.";
    if (target === null) {
      const into = strongest(weights.map((row) => row[source])).map((t) => `${to[t]} ${percent(weights[t][source])}`);
      return into.length ? `“${from[source]}” is looked at by ${into.join(", ")}` : `Nothing looks at “${from[source]}”`;
    }
    if (source === null) return `“${to[target]}” ${percent(probabilities[target])} likely, ${looksAt(this.explanation, target)}`;
    return `“${to[target]}” looks at “${from[source]}” with ${percent(weights[target][source])} of its attention`;
  }
}

/** The places of the largest of some weights, those hardly there left out. */
function strongest(weights) {
  const places = weights.map((_, place) => place).filter((place) => weights[place] >= FAINTEST);
  return places.sort((a, b) => weights[b] - weights[a]).slice(0, MOST);
}

/** Where a word of the translation comes from, in words. */
export function looksAt({ source, weights }, target) {
  const from = strongest(weights[target]).map((s) => `${source[s]} ${percent(weights[target][s])}`);
  return `looks at ${from.join(", ") || "nothing"}`;
}
