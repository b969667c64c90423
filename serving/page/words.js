/**
 * Joins pieces to words for readers. Pure functions without page and server.
 */

const SPACE = "▁"; // SentencePiece's mark of a space
const END = "</s>"; // the end of a part of the text; the next piece begins a new word
const BYTE = /^<0x([0-9A-F]{2})>$/; // one byte of a character outside the vocabulary
// A mark begins no word: it belongs to the letter before it.
const WRITTEN_WITHOUT_SPACES = /^(?![\p{M}\u0e33\u0eb3])[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]/u;
const BLANK = /[\p{Z}\p{Cc}\p{Cf}]/u; // separators, control and invisible formatting characters
const BLANKS = /[\p{Z}\p{Cc}\p{Cf}]*/uy;

/**
 * Groups pieces into words: [{text, places}]. `places` are the indices of a word's pieces.
 *
 * A word begins with "▁", at the beginning of a part, and with every piece of a script without spaces. Padding ("") and
 * ends of parts belong to no word. Spaces before a word belong to the word.
 */
export function wordsOf(pieces) {
  const words = [];
  let word = null;
  pieces.forEach((piece, place) => {
    if (piece === END || piece === "") {
      word = null;
      return;
    }
    const begins = piece.startsWith(SPACE) || WRITTEN_WITHOUT_SPACES.test(piece);
    if (!word || (begins && word.text)) {
      word = { text: "", places: [] };
      words.push(word);
    }
    word.places.push(place);
    word.text = spell(word.places.map((place) => pieces[place]));
  });
  return words.filter((word) => word.text);
}

/** Returns the text of pieces, without space at its ends. */
function spell(pieces) {
  const bytes = pieces.flatMap((piece) => {
    const byte = BYTE.exec(piece);
    return byte ? parseInt(byte[1], 16) : [...new TextEncoder().encode(piece.replaceAll(SPACE, " "))];
  });
  return new TextDecoder().decode(new Uint8Array(bytes)).trim();
}

/**
 * Converts an explanation of pieces to an explanation of words.
 *
 * A word's probability is the product of its pieces' probabilities (the sum of their logarithms). A word's attention to
 * a source word is the mean over its pieces, summed over the source word's pieces.
 *
 * @param {{source_pieces: string[], pieces: string[], token_scores: number[], alignment: number[][]}} answer alignment
 *   has a row for each of `pieces` and a column for each of `source_pieces`.
 * @returns {{source: string[], target: string[], probabilities: number[], weights: number[][]}} weights has a row for
 *   each word of target and a column for each word of source.
 */
export function explanationOf(answer) {
  const source = wordsOf(answer.source_pieces);
  const target = wordsOf(answer.pieces);
  const weight = (rows, columns) =>
    sum(rows.map((row) => sum(columns.map((column) => answer.alignment[row][column])))) / rows.length;
  return {
    source: source.map((word) => word.text),
    target: target.map((word) => word.text),
    probabilities: target.map((word) => Math.exp(sum(word.places.map((place) => answer.token_scores[place])))),
    weights: target.map((word) => source.map((from) => weight(word.places, from.places))),
  };
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/**
 * Finds words in a text, one after the other: [begin, end] of each word. A word is null if the text lacks it, because
 * the model changes some characters.
 */
export function placesIn(text, words) {
  let from = 0;
  return words.map((word) => {
    const begin = find(text, word, from);
    if (begin < 0) return null;
    from = begin + word.length;
    return [begin, from];
  });
}

/**
 * Finds a word: next to `from` (after white space), else after any later white space; -1 if the text lacks the word.
 */
function find(text, word, from) {
  BLANKS.lastIndex = from;
  const next = from + BLANKS.exec(text)[0].length;
  if (text.startsWith(word, next)) return next;
  let begin = text.indexOf(word, from);
  while (begin > 0 && !BLANK.test(text[begin - 1])) begin = text.indexOf(word, begin + 1);
  return begin;
}

/** Splits a text: [{text, word}] in order. `word` is the number of the word, or null between words. */
export function runsOf(text, words) {
  const runs = [];
  let end = 0;
  const add = (begin, upTo, word) => begin < upTo && runs.push({ text: text.slice(begin, upTo), word });
  placesIn(text, words).forEach((place, word) => {
    if (!place) return;
    add(end, place[0], null);
    add(place[0], place[1], word);
    end = place[1];
  });
  add(end, text.length, null);
  return runs;
}

/**
 * Compares two texts: [{text, isNew}] of words and white space. Words outside the longest common subsequence are new.
 */
export function differences(text, other) {
  const [tokens, others] = [text, other].map((x) => x.split(/(\s+)/).filter(Boolean));
  const common = commonLengths(tokens, others);
  let j = 0;
  return tokens.map((token, i) => {
    while (j < others.length && token !== others[j] && common[i][j + 1] >= common[i + 1][j]) j++;
    const isNew = token !== others[j];
    if (!isNew) j++;
    return { text: token, isNew: isNew && token.trim() !== "" };
  });
}

/** Returns the length of the longest common subsequence of a from i on and b from j on, for all i and j. */
function commonLengths(a, b) {
  const lengths = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  return lengths;
}
