import functools
import itertools
import re

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_transformer.config import BOS_ID, EOS_ID
from keras_transformer.errors import UserError
from keras_transformer.normalization import mend
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.translation import segments
from keras_transformer.translation.options import INPUTS, options_of
from keras_transformer.translation.segments import EXTRA_LENGTH, LONGEST_ASKED, divide_into_parts
from keras_transformer.translation.signatures import Signatures
from keras_transformer.translation.translator import TextTranslator, Translator
from tests import tiny
from tests.global_state import living_graphs

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


class Numbers(Tokenizer):
    """Spells ids out: random ones make no text that could be tokenised again."""

    def decode(self, ids):
        tokens = tf.ragged.boolean_mask(tf.strings.as_string(ids), ids > EOS_ID)
        return tf.strings.reduce_join(tokens, axis=1, separator=" ")


@functools.cache
def endless():
    """A `Translator` that spells ids out, and never ends before the limit."""
    settings = {**SETTINGS, "beam_size": 1, "extra_length": 53}
    return Translator(tiny.endless(), Numbers(tiny.tokenizer_model()), **settings)


def call(signature, texts, **options):
    """What the trained model answers. To trace a search takes seconds, so most are greedy."""
    some = translator(3 if signature in ("alternatives", "translate_with_options") else 1)
    return ask(some, signature, texts, **options)


def ask(some, signature, texts, **options):
    """Output name -> list; an option is one value for all texts, or a list; it is not given where it is left out."""
    not_given = {option.name: option.not_given for option in options_of(signature)}
    columns = {**not_given, **({"translation": ""} if signature == "score" else {}), **options, "text": texts}
    tensors = {
        name: tf.constant(value if isinstance(value, list) else [value] * len(texts), dtype, shape=[len(texts)])
        for (name, dtype), value in ((item, columns[item[0]]) for item in INPUTS[signature].items())
    }
    return {name: output.numpy().tolist() for name, output in some._call(signature, tensors).items()}


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


def test_translations_are_those_of_a_plain_search_over_full_passes_and_what_was_learned():
    texts, scores = translator(3).translate_batch(TEXTS)
    expected = [FullPasses(tiny.trained_transformer(), text).search(3) for text in TEXTS]
    assert texts == [text for text, _, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score, _ in expected], rtol=1e-4, atol=1e-6)
    lengths = {len(ids) for _, _, ids in expected}
    assert len(lengths) > 2 and min(lengths) < 30  # of their own, not the limit's
    sources, targets = zip(*tiny.learned_pairs(), strict=True)
    assert translator(1).translate(sources) == list(targets)


def test_a_translation_has_at_most_so_many_tokens_more_than_its_source():
    """Than its own source: a longer one in the same batch lends it nothing."""
    texts = ["seven", "ten nine eight four zero"]
    searches = [FullPasses(tiny.endless(), text) for text in texts]
    for search in searches:
        search.extra_length = 53
    expected = [search.search(1) for search in searches]
    lengths = [len(search.source_ids) for search in searches]
    assert lengths[1] > lengths[0] > 0 and translator(1).signatures.extra_length == 50
    assert [len(ids) for _, _, ids in expected] == [length + 53 for length in lengths]
    found, scores = endless().translate_batch(texts)
    assert found == [" ".join(str(id) for id in ids if id > EOS_ID) for _, _, ids in expected]
    np.testing.assert_allclose(scores, [score for _, score, _ in expected], rtol=1e-4, atol=1e-6)


def test_sentences_and_long_ones_in_parts_are_translated_one_by_one_and_all_between_them_is_kept(monkeypatch):
    """The parts, read one after the other, are all of the text, and more than are translated side by side."""
    monkeypatch.setattr(segments, "FEWEST_AT_ONCE", 3)
    some = Translator(tiny.trained_transformer(), tiny.tokenizer(), **{**SETTINGS, "beam_size": 1, "max_length": 17})
    sentences = [*tiny.ENGLISH, " ".join(tiny.ENGLISH * 5)]
    text = "\n " + "\r\n\t".join(sentences) + "\n\n"
    (found, _), scores = some.translate_batch([text, "one"])
    parts = divide_into_parts(tf.constant(sentences), tiny.tokenizer(), 17)
    read, rows = tiny.tokenizer().decode(parts.ids).numpy(), parts.rows.numpy().tolist()
    assert b" ".join(read[len(tiny.ENGLISH) :]).decode() == sentences[-1] and max(map(len, parts.ids.to_list())) <= 17
    searches = [FullPasses(tiny.trained_transformer(), part.decode()).search(1) for part in read]
    translations = [
        " ".join(x[0] for x, own in zip(searches, rows, strict=True) if own == row) for row in sorted({*rows})
    ]
    assert found == "\n " + "\r\n\t".join(translations) + "\n\n"
    lengths = np.array([len(ids) for _, _, ids in searches])
    log_probs = np.array([score for _, score, _ in searches]) * ((5 + lengths) / 6) ** ALPHA
    assert scores[0] == pytest.approx(log_probs.sum() / ((5 + lengths.sum()) / 6) ** ALPHA, rel=1e-4)


def test_texts_are_divided_into_their_sentences():
    text = " One two. Seven\r\nTen nine eight! 一二。三「四。」五 "
    sentences = ["One two.", "Seven", "Ten nine eight!", "一二。", "三「四。」五"]
    (parts, blank), nothing = TextTranslator(1).fragments([text, " \n"]), TextTranslator(1).fragments([])
    assert "".join(parts) == text and [part for part in parts if part.strip()] == sentences
    assert blank == [""] and nothing == [] and TextTranslator(1).fragments(text.encode()) == parts
    assert "".join(TextTranslator(1).fragments("\ud83d \ud83d\ude00")) == "\ufffd 😀"  # half an emoji, both halves
    of_lines = translator(3, split_sentences=False).fragments(["one two. Seven\nTen"])[0]
    assert [part for part in of_lines if part.strip()] == ["one two. Seven", "Ten"]


# What no translation depends on.


def test_blank_text_gives_blank_text_and_score_0():
    blank = ["", " ", " \t\n", "\u00a0", "\u3000", "\u200b\ufeff", "\x00\x07", "\u2028 \r\n"]
    assert translator(3).translate_batch(blank) == ([""] * len(blank), [0.0] * len(blank))
    _, scores = translator(3).translate_batch(["\u00a0 one \t", "\x00two", "0", "one."])
    assert 0.0 not in scores and translator(3).translate_batch([]) == ([], []) and translator(3).translate([]) == []


def test_one_str_gives_its_own_result_and_texts_may_come_in_any_iterable_of_str():
    greedy, several = translator(1), translator(3, random_transformer)
    for ask in (greedy.translate, greedy.translate_scored, several.alternatives, greedy.sample, greedy.explain):
        assert repr(ask("one two")) == repr(ask(["one two"])[0])
    assert repr(greedy.score("one two", "eins zwei")) == repr(greedy.score(["one two"], ["eins zwei"])[0])
    expected = translator(1).translate(TEXTS)
    for texts in (tuple(TEXTS), iter(TEXTS), np.array(TEXTS), np.array(TEXTS, object)):
        assert translator(1).translate(texts) == expected
    for text in (None, 7, float("nan"), ["one"]):
        with pytest.raises(UserError, match=r"every text must be a str\. Received: .* as text 2 of 3"):
            translator(1).translate(["one", text, "two"])


def test_an_option_may_be_of_every_text_its_own_or_is_that_of_the_translator():
    beam_sizes, alphas = [3, 1, 2, 0, 0], [0.0, -1.0, 2.0, float("nan"), float("nan")]
    found = translator(3).translate_scored(TEXTS, beam_size=beam_sizes, length_penalty=alphas)
    for text, beam_size, alpha, (translation, score) in zip(TEXTS, beam_sizes, alphas, found, strict=True):
        search = (beam_size, alpha) if beam_size else (3, ALPHA)
        expected, expected_score, _ = FullPasses(tiny.trained_transformer(), text).search(*search)
        assert translation == expected and score == pytest.approx(expected_score, rel=1e-4, abs=1e-6)
    not_given = {option.name: option.not_given for option in options_of("translate_with_options")}
    assert translator(3).translate(TEXTS, **not_given) == translator(3).translate(TEXTS)


def test_alternatives_are_the_beam_best_first():
    found = translator(3, random_transformer).alternatives([*TEXTS, ""])
    best = translator(3, random_transformer).translate_scored([*TEXTS, ""])
    for alternatives, first in zip(found, best, strict=True):
        assert len(alternatives) == 3 and alternatives[0].text == first.text
        assert alternatives[0].score == pytest.approx(first.score, rel=1e-5, abs=1e-6)
        assert [score for _, score in alternatives] == sorted((score for _, score in alternatives), reverse=True)
    assert all(len({text for text, _ in alternatives}) == 3 for alternatives in found[:-1])
    greedy = translator(1).alternatives(TEXTS)
    assert [[row.text for row in rows] for rows in greedy] == [[text] for text in translator(1).translate(TEXTS)]


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
    wrong = [
        ("summarise", {"text": []}, "no signature `summarise`, only translate"),
        ("sample", {"text": ["one"], "heat": 1.0}, "`sample` has no option `heat`, only temperature"),
        ("sample", {"text": ["one"], "seed": 1.5}, "`seed` must be a whole number. Received: 1.5"),
        ("translate", {}, "`translate` needs text"),
        ("score", {"text": ["one"]}, "`score` needs translation"),
        ("score", {"text": ["one", "two"], "translation": ["eins"]}, "`translation`.*Received: 1, of 2"),
    ]
    options = {
        "`prefix`.*Received: 1, of 2": {"prefix": ["a"]},
        "`prefix` must be a str. Received: 5": {"prefix": 5},
        "`length_penalty` .*: 11": {"length_penalty": [0.0, 11.0]},
        "`length_penalty` must be a number. Received: '1'": {"length_penalty": "1"},
        "`beam_size` is at most 1, .* Received: beam_size=3": {"beam_size": [1, 3]},
        "`beam_size` must be a whole number. Received: '2'": {"beam_size": "2"},
        "`max_length` must be a whole number": {"max_length": True},
    }
    wrong += [("translate_with_options", {"text": ["one", "two"], **given}, said) for said, given in options.items()]
    for signature, inputs, message in wrong:
        with pytest.raises(UserError, match=message):
            translator(1).ask(signature, **inputs)
    assert asked == []


def test_translators_use_their_batch_size_and_every_replica_gets_a_whole_batch(monkeypatch):
    with (strategy := tiny.two_replicas()).scope():
        model = tiny.transformer()
    for replicas, expected in ((None, [1, 2, 2]), (strategy, [1, 4])):
        some, sizes = Translator(model, tiny.tokenizer(), beam_size=1, batch_size=2, strategy=replicas), []

        def call(signature, inputs, sizes=sizes):
            sizes.append(len(inputs["text"]))
            upper = tf.strings.upper(inputs["text"], encoding="utf-8")
            return {"translation": upper, "score": tf.zeros(tf.shape(upper))}

        monkeypatch.setattr(some, "_call", call)
        assert some.translate(TEXTS) == [text.upper() for text in TEXTS] and sorted(sizes) == expected


@pytest.mark.slow
def test_every_replica_translates_its_rows_of_a_batch_with_its_own_weights():
    """Once they are made to differ, which in training they never do, one can see whose they were."""
    with tiny.two_replicas().scope():
        model = tiny.transformer(seed=3)
    together = Translator(model, tiny.tokenizer(), beam_size=2, batch_size=1, strategy=tiny.two_replicas())
    one, other = (
        Translator(tiny.transformer(seed=seed), tiny.tokenizer(), beam_size=2).translate_batch(TEXTS) for seed in (3, 5)
    )
    for weight, different in zip(model.weights, tiny.transformer(seed=5).weights, strict=True):
        _, second = weight.value.values
        second.assign(different)
    for count in (0, 1, 2, 5):
        text, score = together.translate_batch(TEXTS[:count])
        assert text == [(one, other)[row % 2][0][row] for row in range(count)]
        assert score == pytest.approx([(one, other)[row % 2][1][row] for row in range(count)], rel=1e-5)


def test_impossible_options_are_refused_by_name(tmp_path):
    numbers = [("beam_size", number) for number in (0, -1, 1000, "2", 2.5)] + [("max_length", 0), ("batch_size", 0)]
    for name, value in [*numbers, *(("length_penalty", number) for number in (float("nan"), 11, "2"))]:
        with pytest.raises(UserError, match=rf"{name}.*{value}"):
            Translator(tiny.trained_transformer(), tiny.tokenizer(), **{name: value})
    (tmp_path / "terms.tsv").write_text("two\n", encoding="utf-8")
    for glossary, said in ((tmp_path / "terms.tsv", "terms.tsv, line 1: "), ({"": "DUO"}, "must have a source form")):
        with pytest.raises(UserError, match=said):
            Translator(random_transformer(), tiny.keeping_tokenizer(), glossary=glossary)
    for how in ({"protect": True}, {"glossary": {"two": "DUO"}}):  # without placeholders
        with pytest.raises(UserError, match="`protect` 0.1"):
            Translator(random_transformer(), tiny.tokenizer(), **how)


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
    (glossary := tmp_path / "terms.tsv").write_text("two\tDUO\n", encoding="utf-8")
    echo = Echo(3, glossary, protect=True)
    texts = ["one two 5 km", b"see http://a.b", "two. Three two", "one", "⟦4⟧"]
    words = ["one DUO 5 km", "see http://a.b", "DUO. Three DUO", "one", "⟦4⟧"]
    assert echo.translate(texts) == words and echo.translate(texts, max_length=5) == words
    assert [row.text for row in echo.sample(texts, seed=1)] == words
    assert [[row.text for row in rows] for rows in echo.alternatives(texts)] == [[word, f"({word})"] for word in words]
    assert echo.ask("explain", text=texts[:1])[0]["pieces"][0].decode() == "one ⟦0⟧ ⟦1⟧"
    assert echo.score(["two"], ["DUO"])[0].pieces == ["two", "(two)"]  # as it is
    assert Echo(3).translate("two 5 km") == "two 5 km"


def test_a_translator_with_another_model_keeps_words_and_batch_size_too():
    model, tokenizer = tiny.transformer(), tiny.keeping_tokenizer()
    one = Translator(model, tokenizer, beam_size=1, batch_size=5, glossary={"one": "eins"})
    other = one.with_model(tiny.transformer(seed=3))
    assert other.batch_size == 5 and other.protection.glossary == {"one": "eins"}
    assert one.with_model(model, batch_size=7, glossary={"two": "zwei"}).protection.glossary == {"two": "zwei"}
    texts = ["one two", "three one"]
    (texts_of_batch, scores), found = one.translate_batch(texts), one.translate_scored(texts)
    assert texts_of_batch == [row.text for row in found]
    assert scores == pytest.approx([row.score for row in found], rel=1e-5)  # batches of other sizes round otherwise
    assert all("eins" in text and "⟦" not in text for text in texts_of_batch)


# The signatures.

ROWS = ["one two", "seven. Ten nine", "", "ten nine eight four zero", "Größe 😀", "one one one\n\none one one"]


@pytest.mark.parametrize("signature", INPUTS)
def test_a_row_is_the_same_alone_and_in_any_batch(signature):
    options = {
        "translate_with_options": {
            "prefix": ["", "two", "x", "seven", "", "one. Two"],
            "length_penalty": [0.0, 2.0, 1.0, -1.0, float("nan"), 0.6],
            "beam_size": [3, 2, 1, 1, 0, 99],
            "max_length": [0, 5, 1, -3, 2, 9],
            "repetition_penalty": [1.0, 1.5, 0.0, 2.0, float("inf"), 0.7],
            "no_repeat_ngram": [0, 1, 2, 3, -1, 1_000_000],
        },
        "score": {"translation": ["zwei", "sieben.", "null", "", "Größe", "eins\n\nzwei zwei"]},
        "sample": {
            "temperature": [1.0, 0.5, 0.0, 7.0, float("nan"), -1.0],
            "top_k": [0, 3, 1, -5, 10**9, 5],
            "top_p": [1.0, 0.5, 0.0, float("nan"), -1.0, 0.9],
            "seed": [0, 1, -1, 2**62, -(2**63), 7],
        },
    }.get(signature, {})
    assert all(output == [] for output in call(signature, []).values())
    together = call(signature, ROWS, **options)
    for row, text in enumerate(ROWS):
        own_options = {name: [values[row]] for name, values in options.items()}
        alone = call(signature, [text], **own_options)
        for name, values in together.items():
            value, own = np.array(values[row]), np.array(alone[name][0])
            own = own.reshape(own.shape + (0,) * (value.ndim - own.ndim))  # of no pieces there is no second dimension
            inside, padding = tuple(slice(0, size) for size in own.shape), value.copy()
            padding[inside] = b"" if value.dtype.kind == "S" else 0
            assert not padding.any()
            if value.dtype.kind == "f":
                np.testing.assert_allclose(own, value[inside], rtol=1e-4, atol=1e-5)
                assert np.isfinite(value).all()
            else:
                assert own.tolist() == value[inside].tolist()


def test_a_forced_prefix_is_the_prefix_and_that_of_the_first_part_alone():
    prefixes = ["two", "two  two", "Größe 😀 x", "</s>", "\n", " seven"]
    rows = list(itertools.product(["one two", "ten nine eight four zero"], prefixes, [1, 0]))
    texts, prefix, max_length = map(list, zip(*rows, strict=True))
    options = {"repetition_penalty": 3.0, "no_repeat_ngram": 1, "max_length": max_length, "prefix": prefix}
    found = call("translate_with_options", texts, **options)["translation"]
    for translation, forced in zip(found, prefix, strict=True):
        assert translation.decode().startswith(mend(forced))
    both, second = call("translate_with_options", ["one\ntwo", "two"], prefix=["seven", ""])["translation"]
    first, _, rest = both.decode().partition("\n")
    assert first.startswith("seven") and rest == second.decode()


def test_no_sequence_of_pieces_comes_twice_where_that_is_forbidden_and_a_penalty_makes_repetition_rarer():
    """A model that never ends repeats itself otherwise."""
    found = ask(endless(), "translate_with_options", ["seven"] * 4, no_repeat_ngram=[0, 1, 2, 3])
    free, *others = (translation.split() for translation in found["translation"])
    for n, own in enumerate(others, start=1):
        sequences = [[tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)] for ids in (free, own)]
        repeated = [len(each) - len(set(each)) for each in sequences]
        assert repeated[0] > 0 and repeated[1] == 0
    (found,) = ask(endless(), "translate_with_options", ["seven"], repetition_penalty=9.0)["translation"]
    penalised = found.split()
    assert len(set(penalised)) / len(penalised) > len(set(free)) / len(free)


def test_max_length_is_the_most_tokens_of_a_translation():
    found = ask(endless(), "translate_with_options", ["seven"] * 3, max_length=[1, 2, 7], length_penalty=0.0)
    assert [len(translation.split()) for translation in found["translation"]] == [1, 2, 7]
    assert found["score"][0] > found["score"][1] > found["score"][2]  # one more token, one more log-probability
    found = ask(endless(), "translate_with_options", ["seven"] * 2, max_length=[97, 2**31 - 1])
    assert [len(translation.split()) for translation in found["translation"]] == [97, LONGEST_ASKED]


NAN, INF = float("nan"), float("inf")
OUT_OF_RANGE = {  # (option, value, the value that it counts as; None: as not given)
    "translate_with_options": [
        *(("length_penalty", NAN, None), ("length_penalty", INF, None)),
        *(("length_penalty", 1e9, 10.0), ("length_penalty", -1e9, -10.0)),
        *(("beam_size", -2, None), ("beam_size", 99, None), ("max_length", -1, None), ("no_repeat_ngram", -7, None)),
        *(("repetition_penalty", value, None) for value in (-1.0, NAN, INF)),
        *(("repetition_penalty", 1e9, 100.0), ("repetition_penalty", 1e-9, 0.01)),
    ],
    "sample": [
        *(("temperature", value, 1.0) for value in (NAN, INF, -1.0)),
        *(("temperature", 1e9, 100.0), ("top_k", -3, 0)),
        *(("top_p", value, 1.0) for value in (NAN, 7.0, -1.0)),
    ],
}


@pytest.mark.parametrize("signature", OUT_OF_RANGE)
def test_a_value_out_of_range_counts_as_the_nearest_and_one_that_is_no_number_as_not_given(signature):
    """Every value is that of two rows."""
    rows, not_given = OUT_OF_RANGE[signature], {option.name: option.not_given for option in options_of(signature)}
    seed = {"seed": 5} if signature == "sample" else {}

    def asked(place):
        given = [{row[0]: not_given[row[0]] if row[place] is None else row[place]} for row in rows]
        columns = {name: [{**not_given, **seed, **row}[name] for row in given] * 2 for name in not_given}
        return call(signature, [ROWS[3]] * len(rows) + [ROWS[1]] * len(rows), **columns)

    assert asked(1) == asked(2)


def test_a_translator_leaves_no_graph_behind():
    before = living_graphs()
    Translator(tiny.transformer(), tiny.tokenizer(), beam_size=1, **SETTINGS).translate("one two")
    assert living_graphs() <= before


def test_a_text_in_parts_draws_other_numbers_for_each():
    (translation,) = ask(endless(), "sample", ["seven\nseven"], temperature=9.0)["translation"]
    assert len(translation) > 20 and not translation.startswith(translation[len(translation) // 2 + 1 :])


def test_scores_and_explanations_are_of_the_translation_that_was_found_without_padding():
    """The search is greedy, so the tokenizer divides each translation into the pieces that were found."""
    texts = ["one two", "seven", "ten nine eight four zero", "", "one two three", "one two three\n\none two three"]
    found, explained = translator(1).translate_scored(texts), translator(1).explain(texts)
    scored = translator(1).score(texts, [row.text for row in found])
    for text, best, score, explanation in zip(texts, found, scored, explained, strict=True):
        source_pieces, pieces, token_scores, alignment = explanation
        assert score.pieces == pieces and score.score == pytest.approx(best.score, rel=1e-4, abs=1e-6)
        np.testing.assert_allclose(token_scores, score.token_scores, rtol=1e-4, atol=1e-5)
        assert score.score == pytest.approx(token_scores.sum() / ((5 + len(pieces)) / 6) ** ALPHA, rel=1e-4)
        assert "".join(pieces).replace("</s>", "").replace("▁", " ").split() == best.text.split()
        assert "".join(source_pieces).replace("▁", " ").split() == text.split()
        assert token_scores.shape == (len(pieces),) and alignment.shape == (len(pieces), len(source_pieces))
        np.testing.assert_allclose(alignment.sum(axis=1), 1, atol=1e-5)
    end, middle = pieces.index("</s>") + 1, len(source_pieces) // 2  # of two equal parts
    assert len(pieces) == 2 * end and not alignment[:end, middle:].any() and not alignment[end:, :middle].any()


@settings(max_examples=13, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    text=st.binary(max_size=60),
    prefix=st.binary(max_size=20),
    numbers=st.lists(st.floats(width=32), min_size=4, max_size=4),
    integers=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=5, max_size=5),
)
def test_no_row_makes_a_call_raise(text, prefix, numbers, integers):
    texts = [text, b"one two"]
    options = {"length_penalty": numbers[0], "repetition_penalty": numbers[1], "prefix": prefix}
    options |= {"beam_size": integers[0], "no_repeat_ngram": integers[1], "max_length": min(integers[2], EXTRA_LENGTH)}
    sampling = {"temperature": numbers[2], "top_p": numbers[3], "top_k": integers[3], "seed": integers[4]}
    chosen = {"translate_with_options": options, "sample": sampling, "score": {"translation": [prefix, text]}}
    for signature, its_options in chosen.items():
        found = call(signature, texts, **its_options)
        assert np.isfinite(found["score"]).all()
        for strings in (found.get("translation", []), *found.get("pieces", [])):
            b" ".join(strings).decode("utf-8")  # raises for what is no UTF-8


# Two vocabularies: the source's ids go in, the target's come out.


@pytest.mark.slow
def test_with_two_tokenizers_each_side_has_its_own():
    german = Tokenizer(train_tokenizer([target for _, target in tiny.pairs(211)], 311))
    sizes = {"target_vocabulary_size": german.vocabulary_size, "tie_embeddings": False}
    own = Translator(tiny.transformer(seed=5, **sizes), tiny.tokenizer(), german, 1, 0.0, 31)
    assert german.vocabulary_size != tiny.tokenizer().vocabulary_size
    explained = ask(own, "explain", ["one two", "seven"])
    scored = ask(own, "score", ["one two"], translation="eins zwei")
    sources, target = tiny.tokenizer().encode(["one two", "seven"]), german.encode(["eins zwei"])
    for found, ids in zip(explained["source_pieces"], sources, strict=True):
        assert [piece for piece in found if piece] == tiny.tokenizer().pieces(ids).numpy().tolist()
    assert scored["pieces"][0] == [*german.pieces(target[0]).numpy(), b"</s>"]
    vocabulary = german.pieces(tf.range(german.vocabulary_size)).numpy()
    assert {piece for row in explained["pieces"] for piece in row} - {*vocabulary} == {b""}
    (translation,) = ask(own, "translate_with_options", ["one two"], prefix="vier fünf")["translation"]
    assert translation.decode().startswith("vier fünf")


def test_pairs_that_are_explained_two_at_a_time_have_their_own_scores_and_alignments():
    """Rows of different lengths, and a last one that is blank."""
    rng = np.random.default_rng(3)
    sources, labels = (
        tf.RaggedTensor.from_row_lengths(rng.integers(4, tiny.VOCABULARY, sum(lengths)).astype("int32"), lengths)
        for lengths in ([7, 5, 3, 0], [11, 8, 5, 0])
    )
    model = tiny.transformer(seed=5, num_layers=2)
    signatures = Signatures(model, tiny.tokenizer(), tiny.tokenizer(), 1, ALPHA, 31)
    two, all_at_once = (signatures.explain_labels(sources, labels, tf.constant(n, tf.int64)) for n in (2, 4))
    for found, expected, size in zip(two, all_at_once, (11 + 8 + 5, 11 * 7 + 8 * 5 + 5 * 3), strict=True):
        assert found.shape == (size,) and found.dtype == tf.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@functools.cache
def keeping():
    """A `Translator` of a random model with placeholders, which does not know that it should copy them."""
    return Translator(tiny.transformer(seed=3), tiny.keeping_tokenizer(), beam_size=2, **SETTINGS)


KEPT = ["one ⟦3⟧ two", "⟦0⟧⟦1⟧ see ⟦0⟧.\nten ⟦0⟧", "five", "", "⟦9⟧", "one\n⟦1⟧ two\n⟦2⟧"]


@pytest.mark.parametrize(
    ("signature", "options"),
    [
        ("sample", {"seed": [1, 2, 3, 4, 5, 6], "temperature": 2.0}),
        ("translate_with_options", {"max_length": 1}),
        ("translate_with_options", {"max_length": 2, "prefix": "ten ⟦7⟧"}),
    ],
)
def test_every_placeholder_of_a_sentence_comes_exactly_once_in_its_translation(signature, options):
    found = ask(keeping(), signature, KEPT, **options)
    for text, translation in zip(KEPT, found["translation"], strict=True):
        lines = zip(text.split("\n"), translation.decode().split("\n"), strict=True)
        for number, (source, target) in enumerate(lines):
            more = ["⟦7⟧"] if "prefix" in options and source and number == 0 else []
            kept = sorted(re.findall("⟦.⟧", source) + more)
            assert not kept or sorted(re.findall("⟦.⟧", target)) == kept
