import functools

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID
from keras_transformer.errors import FileError, UserError
from keras_transformer.protection import NO_PLACEHOLDERS
from keras_transformer.translation import segments
from keras_transformer.translation.options import options_of
from keras_transformer.translation.segments import divide_into_parts
from keras_transformer.translation.translator import SavedModelTranslator, TextTranslator, Translator
from tests import tiny

TEXTS = ["one two", "seven", "ten nine eight four zero", "Gr😀öße", "one one one one one one one"]
ALPHA = 0.7
SETTINGS = {"length_penalty": ALPHA, "max_length": 31}


def random_transformer():
    """Weights that are written down: it finds the same on every processor, and is not sure of anything."""
    return tiny.transformer(seed=4)


@functools.cache
def translator(beam_size, model=tiny.trained_transformer, **settings):
    settings = {**SETTINGS, **settings}
    return Translator(model(), tiny.tokenizer(), beam_size=beam_size, batch_size=3, **settings)


class FullPasses:
    """Beam search over Python lists: all that was decoded so far goes through all of the model for every token."""

    extra_length = 50

    def __init__(self, model, text):
        self.pieces = sentencepiece.SentencePieceProcessor(model_proto=tiny.tokenizer_model())
        self.source_ids = self.pieces.encode(text)
        self.logits = graph_of(model)

    def log_probs(self, ids):
        """float64 (V,) of the token after bos and `ids`."""
        logits = self.logits([self.source_ids], [[BOS_ID, *ids]])[0, -1].numpy().astype("float64")
        return logits - np.logaddexp.reduce(logits)

    def search(self, width, alpha=ALPHA):
        """(text, score, ids) of the best hypothesis."""
        live, finished = [(0.0, [])], []
        normalised = functools.partial(by_length, alpha=alpha)
        while len(live[0][1]) < len(self.source_ids) + self.extra_length:
            if len(finished) >= width and normalised(live[0]) <= max(map(normalised, finished)):
                break
            candidates = [(sum_ + p, [*ids, v]) for sum_, ids in live for v, p in enumerate(self.log_probs(ids))]
            candidates.sort(reverse=True)
            finished += [c for c in candidates[:width] if c[1][-1] == EOS_ID]
            live = [c for c in candidates if c[1][-1] != EOS_ID][:width]
        score, ids = max(map(normalised, finished or live))
        return self.pieces.decode([i for i in ids if i > EOS_ID]), score, ids


def by_length(hypothesis, alpha):
    sum_, ids = hypothesis
    return sum_ / ((5 + len(ids)) / 6) ** alpha, ids


@functools.cache
def graph_of(model):
    spec = tf.TensorSpec([None, None], tf.int32)
    return tf.function(
        lambda source_ids, target_ids: model({"source_ids": source_ids, "target_ids": target_ids}),
        input_signature=[spec, spec],
    )


# What is searched for.


def test_translations_are_those_of_a_plain_search_over_full_passes():
    texts, scores = translator(3).translate_batch(TEXTS)
    expected = [FullPasses(tiny.trained_transformer(), text).search(3) for text in TEXTS]
    assert texts == [text for text, _, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score, _ in expected], rtol=1e-4, atol=1e-6)
    lengths = {len(ids) for _, _, ids in expected}
    assert len(lengths) > 2 and min(lengths) < 30  # of their own, not the limit's
    assert any(texts)


def test_what_was_learned_is_translated():
    sources, targets = zip(*tiny.learned_pairs(), strict=True)
    assert translator(1).translate(sources) == list(targets)


def test_a_translation_has_at_most_50_tokens_more_than_its_source():
    """Than its own source: a longer one in the same batch lends it nothing."""
    texts = ["seven", "ten nine eight four zero"]
    searches = [FullPasses(tiny.endless(), text) for text in texts]
    expected = [search.search(1) for search in searches]
    lengths = [len(search.source_ids) for search in searches]
    assert lengths[1] > lengths[0] > 0
    assert [len(ids) for _, _, ids in expected] == [length + 50 for length in lengths]
    found, scores = translator(1, tiny.endless).translate_batch(texts)
    assert found == [text for text, _, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score, _ in expected], rtol=1e-4, atol=1e-6)


def test_sentences_are_translated_one_by_one_and_their_white_space_is_kept():
    sentences = ["one two", "seven", "ten nine eight"]
    text = "\n {}\n\n{}\r\n\t{}\n".format(*sentences)
    (found, _), scores = translator(3).translate_batch([text, "one"])
    searches = [FullPasses(tiny.trained_transformer(), sentence).search(3) for sentence in sentences]
    assert found == "\n {}\n\n{}\r\n\t{}\n".format(*(translation for translation, _, _ in searches))
    lengths = np.array([len(ids) for _, _, ids in searches])
    log_probs = np.array([score for _, score, _ in searches]) * ((5 + lengths) / 6) ** ALPHA
    assert scores[0] == pytest.approx(log_probs.sum() / ((5 + lengths.sum()) / 6) ** ALPHA, rel=1e-4)


def test_texts_are_divided_into_their_sentences():
    text = " One two. Seven\r\nTen nine eight! 一二。三「四。」五 "
    sentences = ["One two.", "Seven", "Ten nine eight!", "一二。", "三「四。」五"]
    (parts, blank), nothing = TextTranslator(1).fragments([text, " \n"]), TextTranslator(1).fragments([])
    assert "".join(parts) == text and [part for part in parts if part.strip()] == sentences
    assert blank == [""] and nothing == [] and TextTranslator(1).fragments(text) == parts
    of_lines = translator(3, split_sentences=False).fragments(["one two. Seven\nTen"])[0]
    assert [part for part in of_lines if part.strip()] == ["one two. Seven", "Ten"]


def test_text_longer_than_max_length_is_translated_in_parts():
    """Nothing is cut off: the parts of the source, read one after the other, are all of it."""
    text = " ".join(tiny.ENGLISH * 5)
    source = divide_into_parts(tf.constant([text]), tiny.tokenizer(), 17).ids.to_list()
    parts = [sentencepiece.SentencePieceProcessor(model_proto=tiny.tokenizer_model()).decode(ids) for ids in source]
    assert " ".join(parts) == text and max(map(len, source)) <= 17
    (found, _), _ = translator(1, max_length=17).translate_batch([text, "one"])
    assert found == " ".join(FullPasses(tiny.trained_transformer(), part).search(1)[0] for part in parts)


def test_more_parts_than_are_translated_side_by_side_lose_nothing(monkeypatch):
    text = "\n".join(tiny.ENGLISH * 2)
    expected = translator(1).translate_batch([text])
    monkeypatch.setattr(segments, "FEWEST_AT_ONCE", 3)
    some = Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=1, **SETTINGS)
    (found,), scores = some.translate_batch([text])
    assert found == expected[0][0] and scores == pytest.approx(expected[1], rel=1e-5, abs=1e-6)
    assert found == "\n".join(translator(1).translate_batch(tiny.ENGLISH)[0] * 2)


# What no translation depends on.


def test_blank_text_gives_blank_text_and_score_0():
    blank = ["", " ", " \t\n", "\u00a0", "\u3000", "\u200b\ufeff", "\x00\x07", "\u2028 \r\n"]
    assert translator(3).translate_batch(blank) == ([""] * len(blank), [0.0] * len(blank))
    _, scores = translator(3).translate_batch(["\u00a0 one \t", "\x00two", "0", "one."])
    assert 0.0 not in scores
    assert translator(3).translate_batch([]) == ([], []) and translator(3).translate([]) == []


def test_one_str_gives_its_own_result():
    greedy, several = translator(1), translator(3, random_transformer)
    for ask in (greedy.translate, greedy.translate_scored, several.alternatives, greedy.sample, greedy.explain):
        assert repr(ask("one two")) == repr(ask(["one two"])[0])
    assert repr(greedy.score("one two", "eins zwei")) == repr(greedy.score(["one two"], ["eins zwei"])[0])


def test_texts_may_come_in_any_iterable_of_str():
    expected = translator(1).translate(TEXTS)
    for texts in (tuple(TEXTS), iter(TEXTS), np.array(TEXTS), np.array(TEXTS, object)):
        assert translator(1).translate(texts) == expected
    for text in (None, 7, float("nan"), ["one"]):
        with pytest.raises(UserError, match=r"every text must be a str\. Received: .* as text 2 of 3"):
            translator(1).translate(["one", text, "two"])


# Options.


def test_no_option_given_is_the_translators_own_search():
    texts = [source for source, _ in tiny.learned_pairs()][:7] + [""]
    plain = translator(3).translate_scored(texts)
    not_given = {option.name: option.not_given for option in options_of("translate_with_options")}
    for options in ({"no_repeat_ngram": 0}, not_given, {"beam_size": 3, "length_penalty": ALPHA}):
        found = translator(3).translate_scored(texts, **options)
        assert [text for text, _ in found] == [text for text, _ in plain]
        np.testing.assert_allclose([score for _, score in found], [score for _, score in plain], rtol=1e-5, atol=1e-6)


def test_an_option_may_be_of_every_text_its_own():
    texts, beam_sizes, alphas = TEXTS[1:4], [3, 1, 2], [0.0, -1.0, 2.0]
    found = translator(3).translate_scored(texts, beam_size=beam_sizes, length_penalty=alphas)
    for text, beam_size, alpha, (translation, score) in zip(texts, beam_sizes, alphas, found, strict=True):
        expected, expected_score, _ = FullPasses(tiny.trained_transformer(), text).search(beam_size, alpha)
        assert translation == expected
        assert score == pytest.approx(expected_score, rel=1e-4, abs=1e-6)


def test_alternatives_are_the_beam_best_first():
    found = translator(3, random_transformer).alternatives([*TEXTS, ""])
    best = translator(3, random_transformer).translate_scored([*TEXTS, ""])
    for alternatives, first in zip(found, best, strict=True):
        assert len(alternatives) == 3 and alternatives[0].text == first.text
        assert alternatives[0].score == pytest.approx(first.score, rel=1e-5, abs=1e-6)
        assert [score for _, score in alternatives] == sorted((score for _, score in alternatives), reverse=True)
    assert all(len({text for text, _ in alternatives}) == 3 for alternatives in found[:-1])


def test_samples_have_their_seed_and_drawing_from_the_best_token_alone_is_greedy_search():
    sampled = [translator(1).sample(TEXTS, seed=seed, temperature=3.0) for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    (alone,) = translator(1).sample(TEXTS[2:3], seed=1, temperature=3.0)
    assert alone.text == sampled[0][2].text
    best = translator(1).sample(TEXTS, top_k=1, temperature=5.0, seed=7)
    assert [text for text, _ in best] == translator(1).translate(TEXTS)


def test_wrong_inputs_are_named_before_any_work(monkeypatch):
    asked = []
    monkeypatch.setattr(translator(1), "_call", lambda *request: asked.append(request))
    for signature, inputs, message in (
        ("summarise", {"text": []}, "no signature `summarise`, only translate"),
        ("sample", {"text": ["one"], "heat": 1.0}, "`sample` has no option `heat`, only temperature"),
        ("translate", {}, "`translate` needs text"),
        ("score", {"text": ["one"]}, "`score` needs translation"),
        ("score", {"text": ["one", "two"], "translation": ["eins"]}, "`translation`.*Received: 1, of 2"),
        ("translate_with_options", {"text": ["one"], "prefix": ["a", "b"]}, "`prefix`.*Received: 2, of 1"),
        ("translate_with_options", {"text": ["a", "b"], "length_penalty": [0.0, 11.0]}, "`length_penalty` .*: 11"),
    ):
        with pytest.raises(UserError, match=message):
            translator(1).ask(signature, **inputs)
    assert asked == []


def test_scores_and_explanations_are_without_padding():
    texts = ["one two", "seven", "ten nine eight four zero", "", "one two three"]
    scored, explained = translator(1).score(texts, translator(1).translate(texts)), translator(1).explain(texts)
    lengths = set()
    for text, score, explanation in zip(texts, scored, explained, strict=True):
        assert score.pieces == explanation.pieces and all(explanation.source_pieces)
        assert "".join(explanation.source_pieces).replace("▁", " ").strip() == text
        assert score.token_scores.shape == (len(score.pieces),)
        assert explanation.alignment.shape == (len(explanation.pieces), len(explanation.source_pieces))
        np.testing.assert_allclose(explanation.alignment.sum(axis=1), 1, atol=1e-5)
        lengths.add(explanation.alignment.shape)
    assert len(lengths) > 3 and (0, 0) in lengths


# Batches.


def shouting(some, monkeypatch):
    """Makes the signatures of a translator give upper-case text. Returns the list of the batches given to them."""
    batches = []

    def call(signature, inputs):
        batches.append([text.decode() for text in inputs["text"].numpy()])
        upper = tf.strings.upper(inputs["text"], encoding="utf-8")
        return {"translation": upper, "score": tf.zeros(tf.shape(upper))}

    monkeypatch.setattr(some, "_call", call)
    return batches


def test_translators_use_their_batch_size_and_every_replica_gets_a_whole_batch(monkeypatch):
    with (strategy := tiny.two_replicas()).scope():
        model = tiny.transformer()
    for replicas, sizes in ((None, [1, 2, 2]), (strategy, [1, 4])):
        some = Translator(model, tiny.tokenizer(), beam_size=1, batch_size=2, strategy=replicas)
        batches = shouting(some, monkeypatch)
        assert some.translate(TEXTS) == [text.upper() for text in TEXTS]
        assert sorted(map(len, batches)) == sizes


# Replicas.


@pytest.mark.slow
def test_every_replica_translates_its_rows_of_a_batch_with_its_own_weights():
    """Once they are made to differ, which in training they never do, one can see whose they were."""
    with tiny.two_replicas().scope():
        model = tiny.transformer(seed=3)
    together = Translator(model, tiny.tokenizer(), beam_size=2, batch_size=1, strategy=tiny.two_replicas())
    one, other = (
        Translator(tiny.transformer(seed=seed), tiny.tokenizer(), beam_size=2).translate_batch(TEXTS) for seed in (3, 5)
    )
    text, score = together.translate_batch(TEXTS)
    assert text == one[0] and score == pytest.approx(one[1], rel=1e-5)
    for weight, different in zip(model.weights, tiny.transformer(seed=5).weights, strict=True):
        _, second = weight.value.values
        second.assign(different)
    for count in (0, 1, 2, 5):
        text, score = together.translate_batch(TEXTS[:count])
        assert text == [(one, other)[row % 2][0][row] for row in range(count)]
        assert score == pytest.approx([(one, other)[row % 2][1][row] for row in range(count)], rel=1e-5)


# Loading.


def test_a_saved_model_that_is_missing_or_damaged_is_one_line(tmp_path):
    (tmp_path / "here").mkdir()
    for name in ("here", "here/7", "nowhere"):
        with pytest.raises(UserError, match=r"no SavedModel.*export\.py"):
            SavedModelTranslator(tmp_path / name)
    (tmp_path / "saved_model.pb").write_bytes(b"\x12\xff")
    with pytest.raises(FileError, match=r"^\S+/saved_model.pb is damaged: export the run again$"):
        SavedModelTranslator(tmp_path)


def test_impossible_options_are_refused_by_name(tmp_path):
    numbers = [("beam_size", 0), ("beam_size", -1), ("max_length", 0), ("batch_size", 0)]
    for name, value in [*numbers, ("length_penalty", float("nan")), ("length_penalty", 11)]:
        with pytest.raises(UserError, match=rf"{name}.*{value}"):
            Translator(tiny.trained_transformer(), tiny.tokenizer(), **{name: value})
    (tmp_path / "terms.tsv").write_text("two\n", encoding="utf-8")
    for glossary, said in ((tmp_path / "terms.tsv", "terms.tsv, line 1: "), ({"": "DUO"}, "must have a source form")):
        with pytest.raises(UserError, match=said):
            Translator(random_transformer(), tiny.keeping_tokenizer(), glossary=glossary)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam_size": 64}, "`beam_size` is at most 2, .* Received: beam_size=64"),
        ({"beam_size": [1, 3]}, "`beam_size` is at most 2"),
        ({"beam_size": 2.5}, "`beam_size` must be a whole number. Received: 2.5"),
        ({"beam_size": "2"}, "`beam_size` must be a whole number. Received: '2'"),
        ({"length_penalty": "1"}, "`length_penalty` must be a number. Received: '1'"),
        ({"prefix": 5}, "`prefix` must be a str. Received: 5"),
        ({"max_length": True}, "`max_length` must be a whole number"),
    ],
    ids=str,
)
def test_options_of_another_kind_or_too_wide_are_refused(options, said):
    translator = Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=2)
    with pytest.raises(UserError, match=said):
        translator.translate(["one", "two"], **options)
    with pytest.raises(UserError, match="`seed` must be a whole number. Received: 1.5"):
        translator.sample("one", seed=1.5)
    assert translator.fragments([b"one", "two"]) == [["one"], ["two"]]


def test_the_latest_version_is_taken(tmp_path, monkeypatch):
    taken = []

    def load(path):
        taken.append(path)
        return type("Loaded", (), {"signatures": {"serving_default": None}})

    monkeypatch.setattr(tf.saved_model, "load", load)
    for version in ("1", "9", "10", ".11.partial", "12x"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").touch()
    SavedModelTranslator(tmp_path)
    SavedModelTranslator(tmp_path / "9")
    assert taken == [str(tmp_path / "10"), str(tmp_path / "9")]


# Words that must not change.


class Echo(TextTranslator):
    """A model that gives back the text, and as a second best the text in brackets.

    A placeholder comes in the place of the word before it.
    """

    def _call(self, signature, inputs):
        text = tf.strings.regex_replace(inputs["text"], r"\pL+(⟦\d⟧)", r"\1")
        several = tf.stack([text, tf.strings.join(["(", text, ")"])], axis=1)
        if signature == "alternatives":
            return {"translations": several, "scores": tf.zeros_like(several, tf.float32)}
        pieces = {"pieces": several, "token_scores": tf.zeros([tf.size(text), 2])}
        return {"translation": text, "score": tf.zeros(tf.shape(text)), **pieces}


def test_a_model_reads_placeholders_and_its_translations_have_the_words(tmp_path):
    glossary = tmp_path / "terms.tsv"
    glossary.write_text("two\tDUO\n", encoding="utf-8")
    echo = Echo(3, glossary, protect=True)
    texts = ["one two 5 km", b"see http://a.b", "two. Three two", "one", "⟦4⟧"]
    words = ["one DUO 5 km", "see http://a.b", "DUO. Three DUO", "one", "⟦4⟧"]
    assert echo.translate(texts) == words
    assert echo.translate(texts, max_length=5) == words
    assert [row.text for row in echo.sample(texts, seed=1)] == words
    assert [[row.text for row in rows] for rows in echo.alternatives(texts)] == [[word, f"({word})"] for word in words]
    assert echo.ask("explain", text=texts[:1])[0]["pieces"][0].decode() == "one ⟦0⟧ ⟦1⟧"
    assert echo.score(["two"], ["DUO"])[0].pieces == ["two", "(two)"]  # as it is
    assert Echo(3).translate("two 5 km") == "two 5 km"


@pytest.mark.parametrize("how", [{"protect": True}, {"glossary": {"two": "DUO"}}])
def test_a_model_without_placeholders_protects_nothing_and_says_so(how, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="`protect` 0.1"):
        Translator(random_transformer(), tiny.tokenizer(), **how)

    class Export:
        def __init__(self, pieces):
            self.signatures = {"explain": lambda text: {"source_pieces": tf.constant([pieces])}}

    (tmp_path / "saved_model.pb").touch()
    for pieces, has_some in ((["▁", "⟦0⟧"], True), (["▁", "<0xE2>"], False)):
        monkeypatch.setattr(tf.saved_model, "load", lambda path, pieces=pieces: Export(pieces))
        if has_some:
            SavedModelTranslator(tmp_path, **how)
        else:
            with pytest.raises(UserError) as refused:
                SavedModelTranslator(tmp_path, **how)
            assert str(refused.value) == NO_PLACEHOLDERS
    SavedModelTranslator(tmp_path)


def test_a_translator_with_another_model_keeps_words_and_batch_size_too():
    model, tokenizer = tiny.transformer(), tiny.keeping_tokenizer()
    one = Translator(model, tokenizer, batch_size=5, glossary={"one": "eins"})
    other = one.with_model(tiny.transformer(seed=3))
    assert other.batch_size == 5 and other.protection.glossary == {"one": "eins"}
    assert one.with_model(model, batch_size=7, glossary={"two": "zwei"}).protection.glossary == {"two": "zwei"}
    texts = ["one two", "three one"]
    (texts_of_batch, scores), found = one.translate_batch(texts), one.translate_scored(texts)
    assert texts_of_batch == [row.text for row in found]
    assert scores == pytest.approx([row.score for row in found], rel=1e-5)  # batches of other sizes round otherwise
    assert all("eins" in text and "⟦" not in text for text in texts_of_batch)
