/**
 * Words that a translation must not change. Pure functions without page and server.
 *
 * They do in the browser what serving/protection.py does, and a test compares the two: protected words become
 * placeholders, ⟦0⟧ ... ⟦9⟧, of which a model with placeholders has each exactly once in its translation.
 */

const MARK = /⟦[0-9]⟧/u;
const NUMBERS = 10;
// As in serving/words.py: the scripts that write no spaces between words, and the characters of other words.
const unspaced =
  String.raw`(?=[\p{L}\p{M}\p{Nl}])[\p{sc=Hani}\p{sc=Hira}\p{sc=Kana}\p{sc=Bopo}\p{sc=Yiii}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}` +
  String.raw`\p{sc=Mymr}\p{sc=Lana}\p{sc=Tale}\p{sc=Talu}\p{sc=Tavt}\p{sc=Ahom}\u3031-\u3035\u3099\u309a\u30fc\uff70\uff9e\uff9f]`;
const letter = String.raw`(?!${unspaced})[\p{L}\p{M}\p{N}\p{Pc}\u00ad\u200c\u200d]`;
const code = "`[^`\\n]+`";
const outside = String.raw`\s\(\)<>"\u3001-\u3003\u3008-\u3020\uff01-\uff65`; // an address
const end = String.raw`(?!(?=[^\x00-\x7f])\p{P})[^.,;:!?'\]\}]`;
const inAddress = String.raw`\([^${outside}]*\)|(?!${unspaced})[^${outside}]`;
const url = String.raw`(?<!${letter})(?:https?://|ftp://|www\.)(?:${inAddress})*(?<=${end})`;
const email = String.raw`(?<!${letter}|[.+\-])(?:${letter}|[.+\-])+@(?:${letter}|-)+(?:\.(?:${letter}|-)+)+`;
const [name, noLetter] = [String.raw`[\p{L}_][\p{L}\p{M}\p{N}_]*`, String.raw`(?![\p{L}\p{M}\p{N}])`];
const inside = String.raw`(?:[^{}]|\{`.repeat(4) + "[^{}]*" + String.raw`\})*`.repeat(4); // braces in braces
const format = String.raw`(?:[0-9]+(?:,\s*-?[0-9]+)?:|[\p{L}\p{M}\p{N}_.]+:(?=%))[^{}\n]*`; // {0:d MMM yyyy}, {day:%d %b}
const argument = String.raw`\s*[$@]?[\p{L}\p{M}\p{N}_.\-]+\s*(?:,${inside})?|${format}`;
const braces = String.raw`\{\{\{?[^{}\n]+\}?\}\}|\{[%#][^{}\n]*[%#]\}|[$#%@]?\{(?:[^{}\s]*|${argument})\}`;
const dollar = String.raw`(?<![\p{L}\p{M}\p{N}$])\$${name}\$?`;
const width = String.raw`[\-+#0']*(?:\*|[0-9]+)?(?:\.(?:\*|[0-9]+))?(?:hh|h|ll|l|L|q|z|j|t)?`;
const directive =
  String.raw`%%|(?<!(?<!%)\p{Nd})%(?:\([^()\n]+\)${width}[A-Za-z]|(?:[0-9]+[$:])?${width}(?:[sdiuoxXfFeEgGcraAp@]|[A-Za-z]` +
  String.raw`${noLetter})|L?[1-9](?!\.?,?[0-9])|${width}<${name}>(?:${width}[A-Za-z]${noLetter})?)` +
  String.raw`|(?<!\p{Nd}\s?)% ${width}[dif](?![\p{L}\p{M}'’])`;
const variable = [braces, dollar, directive].join("|");
const number = String.raw`\p{Nd}+(?:[.,:]\p{Nd}+)*`;
const currency = "EUR|USD|GBP|CHF|JPY|CNY";
// Symbols that no language has as a word, and symbols that are words, too: behind a space those are units if no word follows.
const symbol =
  "k?m/[hs]|[kMGT]?(?:Hz|Wh)|[kMGT](?:W|B|b|bit|Pa|J)|[kM]V|[kcmµn]m[²³23]?|m[²³23]|[kmµ]g|m[lL]|[mµn]s|mph|mAh" +
  `|px|ft|lbs?|${currency}`;
const symbolOrWord = "[mghslLWVBbJ]|Pa|bit|min";
const wordFollows = String.raw`\s*["'(\[\{“”„‟«»‘’‚‹›¿¡]*[\p{L}\p{N}_]`;
const quantity =
  String.raw`(?<!${letter}|[.,]|\p{Nd}:)[\-+−]?${number}(?:\s?(?:[%‰€$£¥]|°[CF]?)` +
  String.raw`|(?:[ap]m|[ \u00a0\u202f]?(?:${symbol})|[\u00a0\u202f]?(?:${symbolOrWord}))(?!${letter})` +
  String.raw`|[ ](?:${symbolOrWord})(?!${letter}|${wordFollows}))` +
  String.raw`|(?:[€$£¥]|(?<!${letter})(?:${currency}))\s?${number}(?!${letter})`;
const option = String.raw`(?<!${letter}|-)--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?!${letter}|-)`; // of a program: --headless
const cell = String.raw`\$?[A-Z]{1,3}\$?[0-9]{1,7}`;
const cells = `(?<!${letter}|[$:])${cell}:${cell}(?!${letter}|:)`; // of a spreadsheet: A1:B6
const fixed = [code, url, email, option, cells, variable].join("|");
const word = /^[\p{L}\p{Nl}\p{No}][\p{L}\p{M}\p{N}\p{Pc}\u00ad\u200c\u200d'’\-]*$/u; // a term of one word stays before its placeholder
// The edges of a term: of a word, and in scripts without spaces, of a letter with its marks, its vowel and those below it.
const begin = String.raw`(?:(?=${letter})(?<!${letter})|(?!${letter})(?<![\p{LOE}\u1039\u17d2\u1a60]))`;
const stop = String.raw`(?:(?<=${letter})(?!${letter})|(?<!${letter})(?![\p{M}\u0e33\u0eb3\u200c\u200d]))`;

const escaped = (term) => term.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&");

/**
 * Reads terms, one a line: "apple = Apfel", or with a tab in place of "=". Blank lines and lines with # are left out.
 *
 * Returns {terms, wrong}: a Map, and the number of the first line of another form, or 0.
 */
export function readTerms(text) {
  const terms = new Map();
  let wrong = 0;
  text.split("\n").forEach((line, place) => {
    if (!line.trim() || line.startsWith("#")) return;
    const [source, target, more] = line.split(line.includes("\t") ? "\t" : "=").map((form) => form.trim());
    if (source && target && more === undefined) terms.set(source, target);
    else wrong ||= place + 1;
  });
  return { terms, wrong };
}

/** Decides which words of a text a translation must keep. */
export class Protection {
  /**
   * @param {Map<string, string>} terms source form -> target form
   * @param {boolean} patterns whether URLs, numbers with units and the like are kept
   */
  constructor(terms, patterns) {
    const forms = ["NFD", "NFC"].flatMap((form) => [...terms].map(([term, target]) => [term.normalize(form), target]));
    this.terms = new Map([...forms, ...terms]); // and the same words with other code points for their accents
    const longestFirst = [...this.terms.keys()].sort((a, b) => [...b].length - [...a].length).map(escaped).join("|");
    const words = longestFirst && `${begin}(?:${longestFirst})${stop}`;
    const parts = [MARK.source, patterns ? fixed : "", words, patterns ? quantity : ""];
    this.spans = new RegExp(parts.filter(Boolean).join("|"), "gu");
  }

  /** Returns a text with placeholders. */
  hide(text) {
    const [sources, words] = [[], []];
    const hidden = text.replace(this.spans, (found) => {
      const isKept = this.terms.has(found) && word.test(found);
      sources.push(isKept ? "" : found);
      words.push(this.terms.get(found) ?? found);
      return `${isKept ? found : ""}⟦${(words.length - 1) % NUMBERS}⟧`;
    });
    return new Hidden(hidden, sources, words);
  }
}

/** Returns a text of which nothing is hidden. */
export const asItIs = (text) => new Hidden(text, [], []);

/** A text whose protected words are placeholders: `sources` are what is missing there, `words` what a translation has. */
export class Hidden {
  constructor(text, sources, words) {
    Object.assign(this, { text, sources, words });
  }

  /** Puts the words into a translation. */
  restore(translation) {
    return this.put([translation], this.words)[0];
  }

  /** Puts the words into the pieces of an explanation. A word gets the attention of the placeholder behind it, too. */
  restoreExplanation(answer) {
    const sources = this.put(answer.source_pieces, this.sources);
    let last = -1;
    const columns = sources.map((piece) => (piece === "" ? last : ++last));
    const alignment = answer.alignment.map((row) => {
      const joined = sources.filter(Boolean).map(() => 0);
      row.forEach((weight, place) => (joined[columns[place]] += weight));
      return joined;
    });
    return { ...answer, source_pieces: sources.filter(Boolean), pieces: this.put(answer.pieces, this.words), alignment };
  }

  /** The n-th ⟦3⟧ of `texts` becomes the word of the n-th ⟦3⟧ of the hidden text. */
  put(texts, words) {
    const left = {};
    [...this.text.matchAll(new RegExp(MARK, "gu"))].forEach(([mark], place) => (left[mark] ??= []).push(words[place]));
    return texts.map((text) => text.replace(new RegExp(MARK, "gu"), (mark) => left[mark]?.shift() ?? mark));
  }
}
