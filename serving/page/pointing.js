/**
 * The pointed words: a word of the translation, a word of the source, or one of each (a cell of the table).
 */

const NOTHING = { target: null, source: null };

/** Tells its views the pointed words. The pointer has priority; without the pointer, the keyboard's focus counts. */
export class Pointing {
  constructor(views) {
    this.views = views;
    this.reset();
  }

  reset() {
    this.hovered = this.focused = NOTHING;
    this.tell();
  }

  /** Listens to pointer and focus inside `root`, on elements with the attributes data-target and data-source. */
  hear(root) {
    const on = (type, member, pointed) =>
      root.addEventListener(type, (event) => {
        this[member] = pointed(event);
        this.tell();
      });
    on("pointerover", "hovered", wordsAt);
    on("pointerleave", "hovered", () => NOTHING);
    on("focusin", "focused", wordsAt);
    on("focusout", "focused", () => NOTHING);
  }

  tell() {
    const { target, source } = isNothing(this.hovered) ? this.focused : this.hovered;
    for (const view of this.views) view.point(target, source);
  }
}

const isNothing = ({ target, source }) => target === null && source === null;

/** Returns the numbers of the words of an event's element. */
function wordsAt(event) {
  const { target, source } = event.target.closest("[data-target], [data-source]")?.dataset ?? {};
  return { target: target === undefined ? null : Number(target), source: source === undefined ? null : Number(source) };
}
