/**
 * Functions that make elements, and that write and colour numbers between 0 and 1.
 */

export const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

/** Makes an element with attributes (data-* too) and children, elements or strings. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Gives an element the shade of a weight between 0 and 1, or no shade (null). */
export function shade(made, weight) {
  made.classList.toggle("lit", weight !== null);
  made.style.setProperty("--weight", weight ?? 0);
}
