import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.config import BOS_ID
from keras_transformer.errors import CorpusError, UserError
from keras_transformer.layers.attention import causal_mask
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.normalization import mend
from keras_transformer.tokenizer import Tokenizer, shift_right, with_eos
from keras_transformer.tools.analysis import annotations, roles
from keras_transformer.tools.analysis.annotations import Tree, pieces_of_words, read_alignments, read_conllu, spans_of
from keras_transformer.tools.analysis.gates import attentions_of
from keras_transformer.tools.analysis.survey import heads, prepare
from keras_transformer.translation.translator import Translator
from tests import reference, tiny

PAIRS = [("one two three", "eins zwei drei"), ("seven", "sieben"), ("nine ten zero four", "neun zehn"), ("two", "zwei")]
TEXTS, REFERENCES = map(list, zip(*PAIRS, strict=True))
LINKS = [[(2, 0), (0, 1)], [], [(3, 0), (1, 1)], [(0, 0)]]
TREES = [Tree(spans_of(text.split()), [(-1, "root"), *((0, "dep") for _ in text.split()[1:])]) for text in TEXTS]
H, N = 2, 2
KINDS = {"encoder": slice(0, 4), "decoder": slice(4, 8), "cross": slice(8, 12)}


@pytest.fixture(scope="module")
def translator():
    return Translator(tiny.transformer(num_layers=N), tiny.tokenizer(), batch_size=3)


@pytest.fixture(scope="module")
def found(translator):
    return heads(translator, TEXTS, REFERENCES, LINKS, TREES, keep=len(PAIRS))


def ids(text, reference_text):
    labels = with_eos(tiny.tokenizer().encode([reference_text])).to_tensor()
    return tiny.tokenizer().encode([text]).to_tensor(), shift_right(labels), labels


def test_the_importance_is_the_mean_absolute_gradient_by_the_rows_of_the_output_projection(translator, found):
    """The sum over the rows of W^O of a head of W^O * d loss / d W^O is d loss / d gate; one pair at a time."""
    model, expected = translator.model, []
    kernels = [a.sublayer.output_projection.kernel.value for a in attentions_of(model)]
    for pair in PAIRS:
        source_ids, target_ids, labels = ids(*pair)
        with tf.GradientTape() as tape:
            logits = model({"source_ids": source_ids, "target_ids": target_ids})
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        of_rows = [np.sum(g * k, axis=1) for g, k in zip(tape.gradient(loss, kernels), kernels, strict=True)]
        expected.append(np.abs(np.concatenate([rows.reshape(H, -1).sum(axis=1) for rows in of_rows])))
    np.testing.assert_allclose(found.importance, np.mean(expected, axis=0), rtol=1e-3, atol=1e-6)
    assert found.importance.min() > 0


def test_the_kept_weights_are_those_of_the_paper(translator, found):
    weights, visible = reference.weights_of(translator.model), tiny.tokenizer().visible_pieces
    for pair, attended in zip(PAIRS, found.sentences, strict=True):
        source_ids, target_ids, labels = (np.asarray(x) for x in ids(*pair))
        pieces = [attended.source_pieces, attended.target_pieces, attended.label_pieces]
        assert pieces == [visible(each[0]) for each in (source_ids, target_ids, labels)]
        assert attended.target_pieces[0] == "<s>" and attended.label_pieces[-1] == "</s>"
        alignment = reference.alignment(weights, source_ids, target_ids, H, reference.post_norm)[0]
        squares = np.sum(attended.weights["cross"][H:] ** 2, axis=0)  # of all layers but the first
        np.testing.assert_allclose(squares / squares.sum(axis=-1, keepdims=True), alignment, rtol=1e-4, atol=1e-6)
        s, t = source_ids.shape[1], target_ids.shape[1]
        assert attended.weights["encoder"].shape == (N * H, s, s) and attended.weights["decoder"].shape == (N * H, t, t)
        assert not np.any(np.triu(attended.weights["decoder"], 1))


@pytest.mark.parametrize("around", ["frame", "tags"])
def test_tokens_that_a_model_puts_around_texts_are_left_out(around):
    """The weights on a text are those that the same tokens inside the text leave for it."""
    (source, target), ((*source_ids,), (_, *target_ids), _) = PAIRS[0], (np.asarray(x)[0] for x in ids(*PAIRS[0]))
    if around == "frame":
        plain = tiny.transformer(num_layers=1)
        framed = tiny.transformer(num_layers=1, frame="7,5/3/11")
        translator, rest = Translator(framed, tiny.tokenizer(), batch_size=3), np.s_[0, :, 1:, 2:-1]
        source_ids, target_ids = [7, 5, *source_ids, 3], [11, BOS_ID, *target_ids]
    else:
        tokenizer, tags = tiny.with_tags(tiny.tokenizer_model()), tiny.tags("both")
        plain = tiny.transformer(num_layers=1, vocabulary_size=tokenizer.vocabulary_size)
        translator = Translator(plain, tokenizer, batch_size=3, tags=tags).between("fr", "en")
        source_ids, target_ids = [tags.sources["fr"], *source_ids], [tags.targets["en"], *target_ids]
        rest = np.s_[0, :, :, 1:]
    (attended,) = heads(translator, [source], [target], keep=1).sentences
    memory = plain.encode(np.array([source_ids], "int32"))
    x = plain.position_layer(plain.target_embedding(np.array([target_ids], "int32")))
    _, weights = plain.decoder.layers[0].align(x, memory["states"], causal_mask(x.shape[1]), memory["mask"])
    np.testing.assert_allclose(attended.weights["cross"], np.asarray(weights)[rest], rtol=1e-3, atol=1e-5)


def test_the_numbers_are_those_of_all_queries_of_the_corpus(found):
    expected = [f"{kind} {layer}.{place}" for kind in KINDS for layer in range(N) for place in range(H)]
    assert found.names == expected and len(found) == 3 * N * H
    for kind, place in KINDS.items():
        weights = [attended.weights[kind] for attended in found.sentences]
        looks = [roles.most_attended(w) for w in weights]
        entropies = np.concatenate([roles.entropies(w) for w in weights], axis=1)
        np.testing.assert_allclose(found.entropies[place], entropies.mean(axis=1), rtol=1e-5)
        offsets, shares = roles.positional(looks, [w.shape[2] for w in weights], kind == "decoder")
        of_keys = [a.target_pieces if kind == "decoder" else a.source_pieces for a in found.sentences]
        every = [piece for pieces in of_keys for piece in pieces]
        frequencies = [[every.count(piece) for piece in pieces] for pieces in of_keys]
        rare, chance = roles.rare(looks, frequencies, kind == "decoder")
        diagonal = roles.diagonal(looks, [w.shape[2] for w in weights]) if kind == "cross" else np.full(N * H, np.nan)
        names = ("offsets", "offset_shares", "rare", "rare_by_chance", "diagonal")
        for name, expected in zip(names, (offsets, shares, rare, [chance] * N * H, diagonal), strict=True):
            np.testing.assert_array_equal(getattr(found, name)[place], expected)
    assert found.pairs == len(PAIRS)


def words_of(pieces):
    """The places of the pieces of each word."""
    numbers = ["".join(pieces[: i + 1]).count("▁") for i in range(len(pieces))]
    return [[i for i, number in enumerate(numbers) if number == word] for word in range(1, 1 + max(numbers))]


def test_alignments_and_parses_are_of_words(found):
    aligned_looks, tree_looks = [], []
    for attended in found.sentences:
        words, targets = words_of(attended.source_pieces), words_of(attended.label_pieces[:-1])
        for looks, kind, rows in ((aligned_looks, "cross", targets), (tree_looks, "encoder", words)):
            of_words = roles.attention_of_words(attended.weights[kind], rows, words)
            looks.append(np.argmax(of_words, axis=-1))
    np.testing.assert_array_equal(found.aligned[KINDS["cross"]], roles.aligned(aligned_looks, LINKS))
    assert np.isnan(found.aligned[:8]).all()
    expected = roles.syntactic(tree_looks, [tree.edges for tree in TREES])["dep"]
    assert list(found.relations) == ["dep"] and found.relations["dep"].pairs == 5
    np.testing.assert_array_equal(found.relations["dep"].to_head, expected.to_head)
    np.testing.assert_array_equal(found.relations["dep"].to_dependent, expected.to_dependent)


def test_batches_blank_pairs_and_long_ones_change_nothing_and_what_is_not_asked_for_is_unknown(
    translator, found, capsys
):
    short, done = Translator(translator.model, tiny.tokenizer(), max_length=31, batch_size=1), []
    texts, references = [*TEXTS, " ", "one", "one " * 37], [*REFERENCES, "eins", "", "eins"]
    other = heads(short, texts, references, keep=3, on_progress=done.append)
    assert "3 pairs left out: blank, or of more than 31 pieces" in capsys.readouterr().out
    assert done == [1] * len(PAIRS) and other.pairs == len(PAIRS) and len(other.sentences) == 3
    np.testing.assert_allclose(other.importance, found.importance, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(other.entropies, found.entropies, rtol=1e-4)
    assert not other.relations and np.isnan(other.aligned).all()


def test_mistakes_are_named(translator, monkeypatch):
    recurrent = translator.with_model(RecurrentNetwork(vocabulary_size=tiny.VOCABULARY, d_model=6))
    for asked, texts, references, trees, words in (
        (recurrent, TEXTS, REFERENCES, None, "only a Transformer has heads"),
        (translator, TEXTS, REFERENCES[1:], None, "equally many of each. Received: 4 texts, 3 references"),
        (translator, TEXTS, REFERENCES, [None], "4 texts, 4 references, 1 trees"),
        (translator, [" "], ["eins"], None, "no pair of sentences is left"),
    ):
        with pytest.raises(UserError, match=words):
            heads(asked, texts, references, trees=trees)
    encode = Tokenizer.encode  # of a tokenizer that rewrites text
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: encode(self, tf.strings.upper(text)))
    with pytest.raises(CorpusError, match="line 1: its pieces do not spell its words"):
        prepare(translator, TEXTS[:1], REFERENCES[:1], alignments=[[(0, 0)]])


DOGS = "1 The 2 det|2 dogs 3 nsubj|3 bark 0 root|4 . 3 punct"
# "Zum" is one token of two words, and a word is left out of the text.
ZUM = "1-2 Zum _ _|1 zu 3 case|2 dem 3 det|3 Haus 0 root|3.1 x _ _"


def parse(sentence):
    """A sentence in CoNLL-U, of tokens "number form head relation"."""
    rows = [token.split() for token in sentence.split("|")]
    return "".join(f"{number}\t{form}\t_\t_\t_\t_\t{head}\t{name}\t_\t_\n" for number, form, head, name in rows) + "\n"


def test_the_pieces_of_a_word_are_those_that_spell_it():
    pieces = ["▁The", "▁do", "gs", "▁b", "ark", "."]
    assert pieces_of_words(pieces, spans_of(["The", "dogs", "bark", "."])) == [[0], [1, 2], [3, 4], [5]]
    # A piece can belong to two words, and a space belongs to the word after it.
    assert spans_of(["Cafe\u0301", "so\u00adft"]) == [(0, 4), (4, 8)]  # as the tokenizer mends them
    assert pieces_of_words(["▁", "don't", "▁"], spans_of(["do", "n't"])) == [[0, 1], [1]]
    # A character can be of several pieces.
    pieces = ["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "!", "<0xC2>", "<0xA0>", "x"]  # 😀!, a space, x
    assert pieces_of_words(pieces, spans_of(["😀!", "x"])) == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\uffff"), max_size=23))
def test_the_pieces_of_any_text_spell_it(text):
    pieces = tiny.tokenizer().pieces(tiny.tokenizer().encode([text])[0]).numpy()
    assert annotations.spelling([piece.decode("utf-8") for piece in pieces])[0] == annotations.characters_of(mend(text))


def test_alignments_are_read_and_refused_where_they_do_not_fit(tmp_path):
    (tmp_path / "links").write_text("0-0 1-2\n\n0-1\r\n", encoding="utf-8")
    sources, targets = ["a b", "c", "d"], ["x y z", "u", "v w"]
    assert read_alignments(tmp_path / "links", sources, targets) == [[(0, 0), (1, 2)], [], [(0, 1)]]
    for text, message in {
        "0-0\n0:0\n": "line 2: not in Pharaoh's format, such as 0-0 1-2: '0:0'",
        "0-0\n2-0\n": "line 2: 2-0 is outside of the sentences, which have 2 and 1 words",
    }.items():
        (tmp_path / "links").write_text(text, encoding="utf-8")
        with pytest.raises(CorpusError, match=message):
            read_alignments(tmp_path / "links", ["a", "b c"], ["x", "y"])
    with pytest.raises(CorpusError, match="cannot read .*nowhere: No such file"):
        read_alignments(tmp_path / "nowhere", [], [])
    (tmp_path / "latin").write_bytes(b"\xe4")
    with pytest.raises(CorpusError, match="latin.*not valid UTF-8"):
        read_conllu(tmp_path / "latin", ["a"])


def test_parses_are_read_with_the_spans_of_their_words_and_refused_where_they_do_not_fit(tmp_path):
    whole = parse(DOGS)
    (tmp_path / "parses").write_text(f"{whole}# text = Zum Haus\n{parse(ZUM)}", encoding="utf-8")
    dogs, zum = read_conllu(tmp_path / "parses", ["The dogs bark.", "Zum Haus"])
    assert dogs.spans == [(0, 3), (3, 7), (7, 11), (11, 12)]
    assert dogs.edges == [(1, "det"), (2, "nsubj"), (-1, "root"), (2, "punct")]
    assert zum.spans == [(0, 3), (0, 3), (3, 7)] and zum.edges == [(2, "case"), (2, "det"), (-1, "root")]
    for text, message in {
        whole.replace("\t2\tdet", "\t7\tdet"): "parse 1: a word depends on a word that the parse does not have",
        whole.replace("\t_\t_\n", "\n"): "parse 1: not a line of ten columns as in CoNLL-U: '1 The",
        whole.replace("\t2\tdet", "\t_\tdet"): "not a line of ten columns",
    }.items():
        (tmp_path / "parses").write_text(text, encoding="utf-8")
        with pytest.raises(CorpusError, match=message):
            read_conllu(tmp_path / "parses", ["The dogs bark."])
