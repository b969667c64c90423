/**
 * A description of the word under the pointer.
 */

import { percent } from "./elements.js";

const MOST = 3; // words in a description
const FAINTEST = 0.05; // the smallest weight in a description

/** The line that describes the word under the pointer. */
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

/** Returns the places of the largest weights, without very small weights. */
function strongest(weights) {
  const places = weights.map((_, place) => place).filter((place) => weights[place] >= FAINTEST);
  return places.sort((a, b) => weights[b] - weights[a]).slice(0, MOST);
}

/** Describes the source words of a word in the translation. */
export function looksAt({ source, weights }, target) {
  const from = strongest(weights[target]).map((s) => `${source[s]} ${percent(weights[target][s])}`);
  return `looks at ${from.join(", ") || "nothing"}`;
}
