"""Links of a corpus for guided alignment: learnt, read from a file, and what a model learns from them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.encoded import EncodedPairs, Sentences, encode_pairs
from keras_transformer.data.links import PLACES, as_weights
from keras_transformer.data.pipeline import teacher_forced
from keras_transformer.errors import CorpusError
from keras_transformer.tools.analysis.links import describe, learn_links, links_of_file, open_links, write_links
from keras_transformer.training.losses import GuidedAlignment
from keras_transformer.training.teacher_forcing import TeacherForcing
from tests import tiny


def reordered(count, seed=0):
    """Pairs of random tokens 10 ... 39. Token n becomes token 2 n + 30, and the last two of a target change places."""
    rng, sources, targets = np.random.default_rng(seed), [], []
    for _ in range(count):
        source = rng.choice(np.arange(10, 40), rng.integers(3, 8), replace=False).tolist()
        target = [2 * token + 30 for token in source]
        target[-2:] = target[:-3:-1]
        sources.append(source)
        targets.append([*target, 3])
    return EncodedPairs(Sentences.of_lists(sources), Sentences.of_lists(targets), {})


def as_sets(links):
    return [{divmod(link, PLACES) for link in row} for row in links.lists()]


def test_words_that_translate_each_other_are_linked_wherever_they_stand():
    pairs = reordered(400)
    found, right = as_sets(learn_links(pairs)), 0
    for links, source in zip(found, pairs.source.lists(), strict=True):
        n = len(source)
        expected = {(place, place) for place in range(n - 2)} | {(n - 2, n - 1), (n - 1, n - 2)}
        assert links <= expected
        right += len(links)
    assert right > 0.99 * len(pairs.source.ids)


@pytest.mark.slow
def test_a_model_looks_where_its_guide_points():
    """The last two tokens change places, and a tiny model attends anywhere unless it is guided."""
    pairs, found = reordered(300), {}
    links = learn_links(pairs)
    batch = teacher_forced(
        pairs.source.padded(rows := np.arange(len(pairs))),
        pairs.target.padded(rows),
        links=as_weights(links, int(pairs.target.lengths.max()), int(pairs.source.lengths.max())),
    )
    linked = batch[0]["links"].any(axis=-1)
    for weight in (0.0, 0.5):
        model = tiny.transformer(vocabulary_size=120, dropout_rate=0.0, num_layers=2, guided_alignment=weight)
        trainer = TeacherForcing(model)
        trainer.compile(keras.optimizers.Adam(0.005), GuidedAlignment(0.1, weight))
        trainer.fit(tf.data.Dataset.from_tensors(batch).repeat(), steps_per_epoch=150, verbose=0)
        _, alignment = model.align(batch[0]["target_ids"], model.encode(batch[0]["source_ids"]))
        is_right = np.argmax(alignment, axis=-1) == np.argmax(batch[0]["links"], axis=-1)
        found[weight] = is_right[linked].mean()
    assert found[0.5] > 0.95 > 0.8 > found[0.0], found


def test_links_are_written_and_described(tmp_path):
    pairs = reordered(50)
    found = learn_links(pairs)
    write_links(found, tmp_path)
    again = open_links(tmp_path)
    assert as_sets(again) == as_sets(found)
    kept, share = describe(again, pairs)
    assert kept == "50 pairs"
    assert share == pytest.approx(100 * len(found.ids) / len(pairs.source.ids))  # a token has at most one link here
    with pytest.raises(CorpusError, match="no words of the corpus could be linked"):
        write_links(Sentences.of_lists([[], []]), tmp_path)


TEXTS = [("one two", "eins zwei"), ("  ", "leer"), ("three four five", "fünf drei vier"), ("ten", "zehn")]


@pytest.fixture
def encoded(tmp_path):
    tokenizers = [tiny.tokenizer(), tiny.spelling_tokenizer()]
    (tmp_path / "tokens").mkdir()
    return encode_pairs(TEXTS, *tokenizers, 31, tmp_path / "tokens"), tokenizers


def test_all_pieces_of_words_are_linked_as_a_file_says_whatever_pairs_were_dropped(encoded, tmp_path):
    pairs, tokenizers = encoded
    (tmp_path / "links").write_text("0-1 1-0\n\n2-0 0-1\n\n", encoding="utf-8")
    found = as_sets(links_of_file(tmp_path / "links", TEXTS, pairs, tokenizers, 31))
    words = [[(1, 0), (0, 1)], [(0, 2), (1, 0)], []]
    kept = [TEXTS[0], *TEXTS[2:]]
    for links, (source, target), of_words in zip(found, kept, words, strict=True):
        pieces = [
            [tokenizer.tokenize([f" {word}"])[0] for word in text.split()]
            for tokenizer, text in zip(tokenizers, (source, target), strict=True)
        ]
        starts = [np.cumsum([0, *map(len, of_side)]) for of_side in pieces]
        places = [[range(*pair) for pair in zip(of_side[:-1], of_side[1:], strict=True)] for of_side in starts]
        assert links == {(t, s) for word, other in of_words for t in places[1][word] for s in places[0][other]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n\n", "links has 2 lines, but there are more pairs"),
        ("0-0\n\n\n\n\n", "links has more lines than there are pairs, 4"),
        ("0-0\n\n0-3\n\n", "links, line 3: 0-3 is outside of the sentences, which have 3 and 3 words"),
        ("0:0\n\n\n\n", "links, line 1: not in Pharaoh's format"),
    ],
)
def test_a_file_of_other_texts_is_refused_with_its_line(encoded, tmp_path, text, message):
    (tmp_path / "links").write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        links_of_file(tmp_path / "links", TEXTS, *encoded, 31)
