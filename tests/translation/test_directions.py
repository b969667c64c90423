"""Models of many languages: the tags that they read, found in the graph, against runs with the ids put in by hand."""

import copy
import functools

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.config import BOS_ID
from keras_transformer.errors import UserError
from keras_transformer.tools.shortlist import Shortlist
from keras_transformer.translation.directions import UNKNOWN_LANGUAGE, Directions, written_tag
from keras_transformer.translation.results import Translation
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.translation.test_translator import FullPasses, graph_of

DIRECTIONS = [("en", "de"), ("de", "fr"), ("zh_Hans", "en"), ("en", "de")]
TEXTS = ["one two", "one two", "ten nine eight four zero", "Größe"]
SOURCES, TARGETS = map(list, zip(*DIRECTIONS, strict=True))
BY_ROW = {"source_lang": SOURCES, "target_lang": TARGETS}


class TaggedPasses(FullPasses):
    """`FullPasses` with the ids of a direction put in by hand."""

    extra_length = 5  # of `tiny.many_languages`

    def __init__(self, translator, text, source, target):
        self.pieces = sentencepiece.SentencePieceProcessor(model_proto=translator.source_tokenizer.model)
        self.source_ids, self.logits = self.pieces.encode(text), graph_of(translator.model)
        source, target = (self.pieces.piece_to_id(f"<2{code}>") for code in (source, target))
        in_source = translator.tags.place == "source"
        self.tag, self.first_id = (target, BOS_ID) if in_source else (source, target)

    def log_probs(self, ids):
        logits = self.logits([[self.tag, *self.source_ids]], [[self.first_id, *ids]])[0, -1].numpy().astype("float64")
        return logits - np.logaddexp.reduce(logits)


@functools.cache
def by_hand(translator):
    """(text, score, ids) of every row."""
    beam_size = translator.width
    passes = (TaggedPasses(translator, *row) for row in zip(TEXTS, SOURCES, TARGETS, strict=True))
    return [each.search(beam_size) for each in passes]


@pytest.mark.parametrize("place, beam_size", [("source", 3), ("both", 1)])
def test_a_batch_of_many_directions_is_what_the_ids_put_in_by_hand_give(place, beam_size):
    some = tiny.many_languages(place, beam_size)
    found, expected = some.translate_scored(TEXTS, **BY_ROW), by_hand(some)
    assert [row.text for row in found] == [text for text, _, _ in expected]
    np.testing.assert_allclose([row.score for row in found], [score for _, score, _ in expected], rtol=1e-4, atol=1e-6)
    assert found[0] != found[1]  # a direction changes the translation
    alone = some.translate_scored(TEXTS[1], source_lang="de", target_lang="fra")
    assert alone.text == found[1].text and alone.score == pytest.approx(found[1].score, rel=1e-5)
    assert some.between("de", "fr").translate_batch(TEXTS[1:2])[0] == [alone.text]
    assert some.translate(f">>fra<< {TEXTS[1]}", source_lang="de", target_lang="en") == alone.text


DEFAULT, OTHER = ("en", "de"), ("fr", "fr")


@pytest.mark.parametrize(
    "source, target, meant",
    [
        *(("", "", DEFAULT), ("en", "xx", DEFAULT), ("klingon", "", DEFAULT), ("EN-us", "DE_de", DEFAULT)),
        *(("fr-CA", "fr_FR", OTHER), ("en-GB", "zh-SG", ("en", "zh_Hans")), ("", "zh-TW", DEFAULT)),
        *(("eng", b"\xff", DEFAULT), ("fr", "fr", OTHER), ("fre", "FRA", OTHER), ("", "zh-CN", ("en", "zh_Hans"))),
    ],
)
def test_languages_that_are_unknown_or_not_given_mean_the_default(source, target, meant):
    assert ids_of("one", source, target) == (b"one", *tiny.tags("both").ids(*meant))


@pytest.mark.parametrize(
    "text, rest, target",
    [
        *((">>fr<< one", "one", "fr"), (">>fra<<one two", "one two", "fr"), ("<2fr>\tone", "one", "fr")),
        *(("<2zh-CN> one", "one", "zh_Hans"), (" \u3000<2FR>  one", " \u3000one", "fr")),
        *((">>fr<< <2de> one", "<2de> one", "fr"), (b">>fr<< \xff one\n two", b"\xff one\n two", "fr")),
        *((">>fr<<", "", "fr"), ("\n<2fr>\n\n", "\n", "fr")),
        *(
            (text, text, "en")
            for text in ("", " ", ">>xx<< one", "one <2fr> two", "<2> one", ">>fr< one", "<fr>", "2fr")
        ),
    ],
)
def test_a_tag_at_the_start_of_a_text_is_its_target_language(text, rest, target):
    """In the graph and in Python."""
    assert ids_of(text, "fr", "en") == (tf.compat.as_bytes(rest), *tiny.tags("both").ids("fr", target))
    if isinstance(text, str):
        left, code = written_tag(text, tiny.tags("both"))
        assert left == rest and tiny.tags("both").find(None, code or "en")[1] == target


def ids_of(text, source, target):
    """(text, source_tag, first_id), checked against those of the place "source"."""
    columns = [tf.constant([x]) for x in (text, source, target)]
    of_source, of_both = (Directions(tiny.tags(place)).of(*columns) for place in ("source", "both"))
    assert "first_id" not in of_source
    assert of_source["source_tag"] == of_both["first_id"] and of_source["text"] == of_both["text"]
    return tuple(of_both[name].numpy()[0] for name in ("text", "source_tag", "first_id"))


def test_a_language_that_the_model_does_not_have_is_marked_by_a_score_that_no_translation_has():
    functions = tiny.many_languages("both", 1).signatures.functions()
    rows = [("", "fr-CA", True), ("en-GB", "", True), ("", "xx", False), ("xx", "de", False), ("zh-TW", "", False)]
    rows += [("", "xx", True)]
    columns = ["one", "one", "one", "one", "", ">>fra-CA<< one"], *zip(*(row[:2] for row in rows), strict=True)
    inputs = dict(zip(("text", "source_lang", "target_lang"), map(tf.constant, columns), strict=True))
    for signature, name in (("translate", "score"), ("alternatives", "scores")):
        scores = functions[signature](inputs)[name].numpy().reshape(len(rows), -1)
        assert [(row > UNKNOWN_LANGUAGE).all() for row in scores] == [is_known for *_, is_known in rows]
        assert (scores[2:5] == UNKNOWN_LANGUAGE).all()


def test_every_signature_knows_the_direction():
    some = tiny.many_languages("both", 1)
    expected = by_hand(some)
    texts = [text for text, _, _ in expected]
    assert [row.text for row in some.sample(TEXTS, top_k=1, **BY_ROW)] == texts
    explained, scored = some.explain(TEXTS, **BY_ROW), some.score(TEXTS, ["eins zwei"] * 4, **BY_ROW)
    for row, direction, *answers, (_, _, best) in zip(TEXTS, DIRECTIONS, explained, scored, expected, strict=True):
        passes = TaggedPasses(some, row, *direction)
        given = [*passes.pieces.encode("eins zwei"), passes.pieces.eos_id()]
        for found, ids in zip(answers, (best, given), strict=True):
            assert found.pieces == passes.pieces.id_to_piece(ids)
            log_probs = [passes.log_probs(ids[:n])[id] for n, id in enumerate(ids)]
            np.testing.assert_allclose(found.token_scores, log_probs, rtol=1e-3, atol=1e-4)
        assert answers[0].source_pieces == passes.pieces.id_to_piece(passes.source_ids)  # without the tag
        np.testing.assert_allclose(answers[0].alignment.sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.slow
def test_options_prefixes_and_words_that_must_not_change_go_with_tags():
    place = "both"
    some = tiny.many_languages(place, 3)
    keeping = Translator(
        some.model,
        tiny.with_tags(tiny.keeping_tokenizer().model),
        beam_size=1,
        tags=tiny.tags(place),
        glossary={"fra": "x", "seven": "sieben"},
        protect=True,
    )
    text = "seven https://a.org/b"
    (found, same, other) = keeping.translate([text, f">>fra<< {text}", text], target_lang=["fr", "de", "de"])
    assert found == same != other
    assert all(text.count("sieben") == text.count("https://a.org/b") == 1 for text in (found, other))
    forced = some.translate_scored([*TEXTS, " "], prefix="A", source_lang=[*SOURCES, ""], target_lang=[*TARGETS, "fr"])
    assert all(row.text.startswith("A") for row in forced[:4]) and forced[4] == Translation("", 0.0)
    assert forced[0] != forced[1]
    size = some.target_tokenizer.vocabulary_size
    listed = some.with_model(some.model, shortlist=Shortlist(np.zeros((size, 1), int), np.arange(size), size))
    of_all = [row.text for row in some.translate_scored(TEXTS, beam_size=2, **BY_ROW)]
    assert [row.text for row in listed.translate_scored(TEXTS, beam_size=2, **BY_ROW)] == of_all


def test_a_language_that_the_model_does_not_have_is_named():
    some, known = tiny.many_languages("source"), "only de, en, fr, zh"
    for ask in (some.translate, some.alternatives, some.explain, some.sample, some.translate_scored):
        with pytest.raises(UserError, match=f"^the model has no `target_lang` it, {known}$"):
            ask(["one", "two"], target_lang=["de", "it"])
    for ask, *texts in ((some.score, "one", "eins"), (some.between,)):
        with pytest.raises(UserError, match=f"no `source_lang` xx, {known}"):
            ask(*texts, source_lang="xx")
    with pytest.raises(UserError, match="`target_lang` must have one value for every text. Received: 1, of 2 texts"):
        some.translate(["one", "two"], target_lang=["de"])


def test_a_model_of_one_direction_knows_its_own_languages():
    some = copy.copy(tiny.many_languages("source"))
    some.tags, some.languages = None, ("en", "deu_Latn")
    assert some.between("en-GB", "DE") is some
    for languages in ({"target_lang": "fr"}, {"source_lang": ["en", "de"]}):
        with pytest.raises(UserError, match="^the model has one direction, and its `(target|source)_lang` is"):
            some.translate(["one", "two"], **languages)
