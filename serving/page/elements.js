/**
 * How the page makes elements, and writes and paints the numbers between 0 and 1 that it shows.
 */

export const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

/** An element with attributes, data-* among them, and children, elements or strings. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Gives an element the shade of a weight between 0 and 1, or none (null). */
export function shade(made, weight) {
  made.classList.toggle("lit", weight !== null);
  made.style.setProperty("--weight", weight ?? 0);
}
