"""A vocabulary that grows: pieces learnt from new text, behind those of a tokenizer that exists.

The old tokenizer divides the new text. SentencePiece's BPE then takes the old pieces as its symbols, and merges them
into new pieces. So each new piece is made of old pieces, and text without new pieces is divided as before.
"""

import io
import itertools
import unicodedata
from collections import Counter

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from keras_transformer.errors import TokenizerError
from keras_transformer.training.origin import SPACE, spell

COVERAGE = 0.9995  # of the characters of the text: rarer new ones stay bytes
LEAST_WORDS = 2  # occurrences of a word from which pieces are learnt
LONGEST = 16  # characters of a piece, SentencePiece's own limit
CHUNK = 8192  # sentences divided at a time
FIRST_SYMBOL, MOST_SYMBOLS = 0xF0000, 0xFFFD  # code points for private use, which stand for the old pieces
BONUS = 0.01  # added to the score of a new piece of a unigram model, for each old piece after the first that spells it


def extend_tokenizer(model, sentences, most):
    """The model, bytes, with new pieces behind its own. Arguments and errors: those of `learn_pieces`."""
    return append_pieces(model, learn_pieces(model, sentences, most))


def learn_pieces(model, sentences, most):
    """Learns pieces from new text that a tokenizer lacks: new characters first, then frequent words and their parts.

    A piece is one character, or several letters with a space before them or none.

    Args:
        model: a SentencePiece model, BPE or unigram, bytes.
        sentences: iterable of str, read once.
        most: most pieces wanted.

    Returns:
        list of str, none of which the model has.

    Raises:
        TokenizerError: for a model of another kind.
    """
    _kind_of(model)
    words = count_words(model, sentences)
    known = {piece.piece for piece in ModelProto.FromString(model).pieces}
    characters = frequent_characters(words, known)
    usable = known.union(characters)
    new = characters[:most]
    if len(new) < most:
        parts = Counter()
        for word, count in words.items():
            for is_usable, symbols in itertools.groupby(word, usable.__contains__):
                if is_usable and count >= LEAST_WORDS:
                    parts[tuple(symbols)] += count
        new += [piece for piece in dict.fromkeys(merge(parts, most)) if piece not in known and len(piece) <= LONGEST]
    return new[:most]


def _kind_of(model):
    kind = ModelProto.FromString(model).trainer_spec.model_type
    if kind not in (TrainerSpec.BPE, TrainerSpec.UNIGRAM):
        raise TokenizerError("only a BPE or unigram tokenizer can get new pieces: leave out `extend_vocabulary`")
    return kind


def count_words(model, sentences):
    """Counts the words of letters, as the pieces that a tokenizer divides them into. A new character is a piece.

    A new character that is no letter is a word by itself, unless it is a control character.

    Args:
        model: a SentencePiece model, bytes.
        sentences: iterable of str, read once.

    Returns:
        Counter of tuples of str.
    """
    pieces = ModelProto.FromString(model).pieces
    texts = [piece.piece if piece.type == piece.NORMAL and _is_letters(piece.piece) else "" for piece in pieces]
    values = [int(piece.piece[3:-1], 16) if piece.type == piece.BYTE else None for piece in pieces]
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    words, rest = Counter(), iter(sentences)
    while chunk := list(itertools.islice(rest, CHUNK)):
        for ids in processor.encode(chunk):
            symbols = []
            for is_byte, group in itertools.groupby(ids, lambda number: values[number] is not None):
                if is_byte:
                    symbols += bytes(values[number] for number in group).decode("utf-8", "replace")
                else:
                    symbols += [texts[number] for number in group]
            words.update(_words_of(symbols))
    return words


def _words_of(symbols):
    """Yields tuples of the symbols that follow one another in a word; "" and symbols that are no letters end it."""
    word = []
    for symbol in symbols:
        is_part = _is_letters(symbol)
        if word and (not is_part or symbol.startswith(SPACE)):
            yield tuple(word)
            word = []
        if is_part:
            word.append(symbol)
        elif symbol and unicodedata.category(symbol)[0] != "C":
            yield (symbol,)
    if word:
        yield tuple(word)


def _is_letters(text):
    """Whether a piece is of letters and their marks, with a space before them or none."""
    return bool(text) and all(unicodedata.category(character)[0] in "LM" for character in text.removeprefix(SPACE))


def frequent_characters(words, known):
    """The characters that a tokenizer lacks, without the rarest: the others cover `COVERAGE` of the text.

    Args:
        words: Counter of tuples of str.
        known: set of the pieces of the tokenizer.

    Returns:
        list of str, the most frequent first.
    """
    counts = Counter()
    for word, count in words.items():
        for symbol in word:
            counts[symbol] += count * len(symbol)
    new = [(symbol, count) for symbol, count in counts.most_common() if symbol not in known]
    left = counts.total() * (1 - COVERAGE)
    rarest = itertools.accumulate(count for _, count in reversed(new))
    return [symbol for symbol, _ in new[: len(new) - sum(total <= left for total in rarest)]]


def merge(words, most):
    """Joins the symbols that stand together most often, again and again, as BPE does.

    Args:
        words: Counter of tuples of str.
        most: most joined pieces wanted.

    Returns:
        list of str, in the order in which they were joined.
    """
    frequencies = Counter(itertools.chain.from_iterable(word for word in words))
    symbols = [symbol for symbol, _ in frequencies.most_common(MOST_SYMBOLS)]
    code = {symbol: chr(FIRST_SYMBOL + number) for number, symbol in enumerate(symbols)}
    rows = [
        f"{''.join(code[symbol] for symbol in word)}\t{count}"
        for word, count in sorted(words.items())
        if all(symbol in code for symbol in word)
    ]
    if not any(len(row.partition("\t")[0]) > 1 for row in rows):
        return []
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(rows),
        model_writer=trained,
        input_format="tsv",  # a word and its count
        vocab_size=1 + len(symbols) + most,
        hard_vocab_limit=False,  # a small text gives fewer pieces
        model_type="bpe",
        normalization_rule_name="identity",
        character_coverage=1.0,
        add_dummy_prefix=False,
        split_by_unicode_script=False,
        bos_id=-1,
        eos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    joined = [piece.piece for piece in ModelProto.FromString(trained.getvalue()).pieces if piece.type == piece.NORMAL]
    return ["".join(symbols[ord(c) - FIRST_SYMBOL] for c in piece) for piece in joined if len(piece) > 1]


def append_pieces(model, pieces):
    """Adds pieces behind those of a tokenizer, which keep their ids.

    In a BPE model, the new ones are merged after all others, in their order. In a unigram model, each is a little
    likelier than the pieces that spell it.

    Args:
        model: a SentencePiece model, bytes.
        pieces: list of str, from `learn_pieces`.

    Returns:
        The longer model, bytes.

    Raises:
        TokenizerError: for a model that is neither BPE nor unigram.
    """
    description = ModelProto.FromString(model)
    kind = _kind_of(model)
    scores = [piece.score for piece in description.pieces]
    least = min(scores)
    for number, (piece, ids) in enumerate(zip(pieces, spell(model, pieces), strict=True), start=1):
        score = least - number
        if kind == TrainerSpec.UNIGRAM:
            is_spelt = all(description.pieces[i].type == ModelProto.SentencePiece.NORMAL for i in ids)
            score = sum(scores[i] for i in ids) + BONUS * (len(ids) - 1) if is_spelt else least
        description.pieces.add(piece=piece, score=score)
    description.trainer_spec.vocab_size = len(description.pieces)
    return description.SerializeToString(deterministic=True)
