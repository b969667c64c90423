/**
 * Pieces of words put together to the words that a reader sees. Pure functions: they know neither page nor server.
 */

const SPACE = "▁"; // how SentencePiece writes a space
const END = "</s>"; // of a part of the text; what follows begins a new word
const BYTE = /^<0x([0-9A-F]{2})>$/; // one byte of a character that is no piece of the vocabulary
const WRITTEN_WITHOUT_SPACES = /^[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]/u;
const BLANK = /[\p{Z}\p{C}]/u; // separators, control and invisible formatting characters
const BLANKS = /[\p{Z}\p{C}]*/uy;

/**
 * Groups pieces into words: [{text, places}], `places` being those of its pieces.
 *
 * A word begins with "▁", at the beginning of a part, and with every piece of a script that is written without spaces.
 * Padding ("") and ends of parts belong to none; spaces before a word belong to it.
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

/** The text of pieces, without the space before and behind it. */
function spell(pieces) {
  const bytes = pieces.flatMap((piece) => {
    const byte = BYTE.exec(piece);
    return byte ? parseInt(byte[1], 16) : [...new TextEncoder().encode(piece.replaceAll(SPACE, " "))];
  });
  return new TextDecoder().decode(new Uint8Array(bytes)).trim();
}

/**
 * What a server says of pieces, said of words.
 *
 * A word's probability is the product of its pieces' (the sum of their logarithms); it looks at a word of the source
 * as much as its pieces do on average at all pieces of that word.
 *
 * @param {{source_pieces: string[], pieces: string[], token_scores: number[], alignment: number[][]}} answer alignment
 *   has a row for each of `pieces` and a column for each of `source_pieces`.
 * @returns {{source: string[], target: string[], probabilities: number[], weights: number[][]}} weights has a row for
 *   each word of target and a column for each of source.
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
 * Where words stand in a text, one after the other: [begin, end] of each, or null where a word is not found, since the
 * model reads some characters as others.
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

/** The place of a word next to `from`, white space aside; else behind some white space; -1 if it is nowhere. */
function find(text, word, from) {
  BLANKS.lastIndex = from;
  const next = from + BLANKS.exec(text)[0].length;
  if (text.startsWith(word, next)) return next;
  let begin = text.indexOf(word, from);
  while (begin > 0 && !BLANK.test(text[begin - 1])) begin = text.indexOf(word, begin + 1);
  return begin;
}

/** Takes a text apart: [{text, word}] in order, `word` being the number of the word that stands there, or null. */
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

/** What is new in a text: [{text, isNew}] of its words and white space; old are the most words in common with `other`. */
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

/** The length of the longest common subsequence of a from i on and b from j on, for all i and j. */
function commonLengths(a, b) {
  const lengths = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  return lengths;
}
