/**
 * The choice of languages, of a model with more than one direction. The browser remembers the choice for each model.
 */

/** Two lists with a button between them. `changed` is called after every change, with whether the two were swapped. */
export class Languages {
  constructor(root, changed) {
    this.root = root;
    [this.source, this.target, this.swap] = ["#source-lang", "#target-lang", "#swap"].map((name) => root.querySelector(name));
    this.targets = new Map(); // source -> its targets
    const choose = () => this.choose(this.source.value, this.target.value, false, changed);
    for (const list of [this.source, this.target]) list.addEventListener("change", choose);
    this.swap.addEventListener("click", () => this.choose(this.target.value, this.source.value, true, changed));
  }

  /** The inputs of a signature: none of a model of one direction. */
  get inputs() {
    return this.root.hidden ? {} : { source_lang: this.source.value, target_lang: this.target.value };
  }

  /** Offers the languages of a model, [{code, name, targets}], the languages of its default direction first. */
  offer(model, languages) {
    const other = ({ code, targets }) => ({ code, targets: targets.filter((target) => target !== code) });
    const sources = languages.map(other).filter(({ targets }) => targets.length);
    this.root.hidden = sources.flatMap(({ targets }) => targets).length < 2;
    if (this.root.hidden) return;
    this.place = `languages of ${model}`;
    this.names = new Map(languages.map(({ code, name }) => [code, name]));
    this.targets = new Map(sources.map(({ code, targets }) => [code, targets]));
    this.fill(this.source, [...this.targets.keys()]);
    const [source, target] = recall(this.place) ?? [];
    if (this.has(source, target)) this.choose(source, target);
    else this.choose(sources[0].code, languages.find(({ code }) => this.has(sources[0].code, code)).code);
  }

  has(source, target) {
    return Boolean(this.targets.get(source)?.includes(target));
  }

  /** Chooses a direction. If the model lacks it, the source stays, and its target is the former source or its first. */
  choose(source, target, isSwap = false, changed = null) {
    const wished = [target, this.last, this.targets.get(source)[0]];
    this.source.value = this.last = source;
    this.fill(this.target, this.targets.get(source));
    this.target.value = wished.find((code) => this.has(source, code));
    this.swap.disabled = !this.has(this.target.value, source);
    keep(this.place, [source, this.target.value]);
    changed?.(isSwap);
  }

  fill(list, codes) {
    const options = codes.map((code) => new Option(this.names.get(code), code));
    list.replaceChildren(...options.sort((a, b) => a.text.localeCompare(b.text)));
  }
}

/** Returns what was kept in this place, or null. */
function recall(place) {
  try {
    return JSON.parse(localStorage.getItem(place));
  } catch {
    return null;
  }
}

/** Keeps a value, unless the browser keeps nothing. */
function keep(place, value) {
  try {
    localStorage.setItem(place, JSON.stringify(value));
  } catch {
    // Without storage, the next visit begins with the default.
  }
}
