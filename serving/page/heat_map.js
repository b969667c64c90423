/**
 * The cross-attention as a table of shades.
 */

import { element, shade } from "./elements.js";
import { rove } from "./roving.js";

const LARGEST_TABLE = 2500; // cells; a larger table would slow down typing, and nobody could read it

/** The heat map: a row for each word of the translation, a column for each word of the source. */
export class HeatMap {
  constructor(section) {
    this.section = section;
    this.table = section.querySelector("table");
    this.cells = [];
    rove(this.table, () => this.cells);
  }

  show(text, explanation) {
    const { source, target, weights } = explanation ?? { source: [], target: [], weights: [] };
    this.weights = weights;
    const isShown = source.length * target.length <= LARGEST_TABLE;
    this.section.hidden = !target.length;
    this.section.querySelector("#too-long").hidden = isShown;
    this.cells = isShown ? target.map((_, t) => source.map((_, s) => this.cell(explanation, t, s))) : [];
    this.table.replaceChildren(...(isShown && target.length ? this.rows(explanation) : []));
    this.cells[0]?.[0]?.setAttribute("tabindex", 0);
  }

  rows({ source, target }) {
    const columns = source.map((word, s) =>
      element("th", { scope: "col", "data-source": s }, element("span", { lang: "" }, word)),
    );
    this.rowHeads = target.map((word, t) => element("th", { scope: "row", dir: "auto", lang: "", "data-target": t }, word));
    this.columnHeads = columns;
    const rows = target.map((_, t) => element("tr", {}, this.rowHeads[t], ...this.cells[t]));
    return [element("thead", {}, element("tr", {}, element("td"), ...columns)), element("tbody", {}, ...rows)];
  }

  cell({ weights }, t, s) {
    const number = String(Math.round(100 * weights[t][s]));
    const made = element("td", { role: "gridcell", tabindex: -1, "data-target": t, "data-source": s }, number);
    shade(made, weights[t][s]);
    return made;
  }

  /** Focuses the cell with a word's largest attention. */
  focus(target) {
    const weights = this.weights[target];
    this.cells[target]?.[weights.indexOf(Math.max(...weights))].focus();
  }

  point(target, source) {
    if (!this.cells.length) return;
    const mark = (heads, pointed) => heads.forEach((head, n) => head.classList.toggle("pointed", n === pointed));
    mark(this.rowHeads, target);
    mark(this.columnHeads, source);
    for (const cell of this.table.querySelectorAll("td.pointed")) cell.classList.remove("pointed");
    const isPointed = (t, s) => (target ?? t) === t && (source ?? s) === s;
    if (target === null && source === null) return;
    this.cells.forEach((row, t) => row.forEach((cell, s) => cell.classList.toggle("pointed", isPointed(t, s))));
  }
}
