import dataclasses
import logging
import math

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU

import keras_transformer.evaluation
from keras_transformer.cli.console import describe_scores
from keras_transformer.errors import UserError
from keras_transformer.evaluation import measure
from keras_transformer.tools.comparison.prediction import perplexity
from keras_transformer.translation.results import Score

REFERENCE = "the cat sat on the mat"


@pytest.fixture(autouse=True)
def nothing_is_said_yet(monkeypatch):
    """Each message comes once in a process: a test forgets those of the tests before."""
    monkeypatch.setattr(keras_transformer.evaluation, "_said", set())


def test_scores_by_hand():
    # Everything matches, but 4 words for 6 cost the brevity penalty; too long goes unpunished.
    assert measure(["the cat sat on"], [REFERENCE]).bleu == pytest.approx(100 * math.exp(1 - 6 / 4))
    longer = measure([f"{REFERENCE} today"], [REFERENCE])
    assert longer.bleu == pytest.approx(100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** (1 / 4))
    # Matches are summed over the corpus, not averaged over sentences: 6 of 11, 5 of 9, 4 of 7, 3 of 5.
    both = measure([REFERENCE, "v w x y z"], [REFERENCE, "a b c d e"])
    assert both.bleu == pytest.approx(100 * (6 / 11 * 5 / 9 * 4 / 7 * 3 / 5) ** (1 / 4))
    # No quadrigram matches: the first order without a match counts as half a match ("exp").
    assert measure(["a b c d e"], ["a b c x e"]).bleu == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * 0.5 / 2) ** 0.25)
    # 2 of 3 characters, 1 of 2 bigrams and 0 of 1 trigrams match, on either side; there are no longer ones.
    assert measure(["abc"], ["abd"]).chrf == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)


class Uniform:
    """Finds every one of 17 pieces equally likely; a text has a piece for each letter, and its end."""

    def score(self, texts, translations, on_progress=None):
        assert len(texts) == len(translations)
        return [Score(0.0, [], [-math.log(17)] * (len(translation) + 1)) for translation in translations]


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary():
    assert perplexity(Uniform(), ["x", "y"], ["ab", "abc"]) == (pytest.approx(17), 7)
    assert perplexity(Uniform(), ["x", "y"], [["ab", "a"], ["abc", "d"]]) == (pytest.approx(17), 11)
    with pytest.raises(UserError, match="Received: 1 texts, 2 references"):
        perplexity(Uniform(), ["x"], ["ab", "abc"])


def test_equal_translations_score_full_marks_and_nothing_in_common_scores_nothing():
    evaluation = measure([REFERENCE, "a b c d e"], [REFERENCE, "a b c d e"])
    assert (evaluation.bleu, evaluation.chrf) == (pytest.approx(100), pytest.approx(100))
    assert (evaluation.exact, evaluation.sentences) == (1, 2)
    several = measure([REFERENCE, "v w x y z"], [[REFERENCE, "a b c d e"], ["one two three four", "v w x y z"]])
    assert (several.bleu, several.exact) == (pytest.approx(100), 1) and "nrefs:2" in several.bleu_signature
    evaluation = measure(["v w x y z"], ["a b c d e"])
    assert (evaluation.bleu, evaluation.chrf, evaluation.exact) == (0, 0, 0)
    assert measure(["a", "b ", "C", "d", "e"], ["a", "b", "c", "d", "f"]).exact == 2 / 5


def test_the_signature_tells_the_tokenization_and_a_description_has_scores_and_signatures():
    evaluation = measure(["我们走吧。"], ["我们走吧!"], tokenize="zh")
    assert evaluation.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:{sacrebleu.__version__}"
    assert evaluation.bleu == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))
    assert evaluation.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|")
    given = dataclasses.replace(evaluation, bleu=38.46, chrf=61.04, exact=0.125, sentences=1999)
    assert describe_scores(given).splitlines() == [
        f"BLEU 38.5 ({evaluation.bleu_signature})",
        f"chrF 61.0 ({evaluation.chrf_signature})",
        "exact 12.5% of 1,999 sentences",
    ]


@pytest.mark.parametrize(
    ("target_lang", "references", "tokenization"),
    [
        ("zh", ["我们走吧，今天天气很好。", "你好"], "zh"),  # sacreBLEU's own choice, whatever the code of the language
        ("zh-CN", ["我们走吧。"], "zh"),
        ("cmn", ["我们走吧。"], "zh"),
        ("yue", ["我哋走啦。"], "char"),  # sacreBLEU does not know these languages
        ("th", ["ฉันไปโรงเรียนทุกวัน", "สวัสดีครับ"], "char"),
        ("my", ["ကျွန်တော်ကျောင်းသွားတယ်။"], "char"),
        (None, ["わたしは毎日、学校に行きます。"], "char"),  # the text tells
        ("target", ["ฉันไปโรงเรียน ทุกวัน และ อ่านหนังสือ ที่บ้าน"], "char"),  # spaces between phrases only
        (None, ["eins zwei", "drei"], "char"),  # words alone have no runs of four
        ("en", ["e-mail: a.b@c.org, U.S.A. and the dog's bowl"], "13a"),
        ("hi", ["मैं रोज़ स्कूल जाता हूँ।"], "13a"),
        ("ar", ["أذهب إلى المدرسة كل يوم."], "13a"),
    ],
)
def test_the_language_and_the_text_choose_a_tokenization_that_finds_words(target_lang, references, tokenization):
    evaluation = measure(references, references, target_lang=target_lang)
    assert f"|tok:{tokenization}|" in evaluation.bleu_signature and evaluation.bleu == pytest.approx(100)


def without_packages(trg_lang="", tokenize="", **arguments):
    """BLEU where the packages of Japanese and Korean are not installed."""
    if trg_lang in ("ja", "ko") or tokenize == "ja-mecab":
        raise RuntimeError(f"\nInstall it:\n\n  pip install sacrebleu[{trg_lang or 'ja'}]\n")
    return BLEU(**arguments, **({"tokenize": tokenize} if tokenize else {}))


without_packages.TOKENIZER_DEFAULT, without_packages.TOKENIZERS = "13a", {"ja-mecab"}


@pytest.mark.parametrize(
    ("target_lang", "language", "reference", "tokenization"),
    [("ja", "ja", "私は毎日学校に行きます。", "char"), ("kor_Hang", "ko", "나는 매일 학교에 갑니다.", "13a")],
)
def test_a_package_that_the_language_or_the_tokenization_needs_is_named_in_one_line(
    caplog, monkeypatch, target_lang, language, reference, tokenization
):
    monkeypatch.setattr(keras_transformer.evaluation, "BLEU", without_packages)
    evaluations = [measure([reference], [reference], target_lang=target_lang) for _ in range(2)]
    assert evaluations[0].bleu == pytest.approx(100) and f"|tok:{tokenization}|" in evaluations[0].bleu_signature
    install = f"Install it: pip install sacrebleu[{language}]"
    assert caplog.messages == [f"BLEU cannot use sacreBLEU's own tokenization for {language}: {install}"]  # once
    with pytest.raises(UserError, match=r"^tokenize='ja-mecab' cannot be used: Install it: pip install sacre\S+$"):
        measure(["a"], ["a"], tokenize="ja-mecab")


UNKNOWN = "CLDR knows no language 'klingon', so BLEU divides words by tok:13a"


@pytest.mark.parametrize(
    ("tokenize", "target_lang", "reference", "said"),
    [
        ("auto", "klingon", "one two three four.", UNKNOWN),
        ("auto", "deu", "one two three four.", None),
        ("auto", None, "one two three four.", None),
        ("13a", "lc", "Das Haus ist groß.", None),
        ("13a", None, "今天天气很好，我们走吧。", "BLEU (tok:13a) means nothing here"),
        ("zh", None, "ฉันไปโรงเรียน ทุกวัน และ อ่านหนังสือ ที่บ้าน", "BLEU (tok:zh) means nothing here"),
        ("13a", None, "eins zwei drei", "BLEU (tok:13a) means nothing here"),
        ("auto", None, "42", "BLEU (tok:char) means nothing here"),
        ("none", None, "今天 天气 很 好 ， 我们 走 吧 。", None),
    ],
)
def test_an_unknown_language_and_a_bleu_that_means_nothing_are_named(caplog, tokenize, target_lang, reference, said):
    measure([reference], [reference], tokenize, target_lang)
    assert [message[: len(said or "")] for message in caplog.messages] == ([said] if said else [])


@pytest.mark.parametrize(("tokenize", "times"), [("13a", 1), ("none", 0)])
def test_only_unasked_tokenization_is_warned_of_once_and_sacrebleu_is_left_as_it_was(caplog, tokenize, times):
    with caplog.at_level(logging.WARNING, "sacrebleu"):
        for _ in range(3):
            measure(["a ."] * 100, ["a ."] * 100, tokenize)
    said = "That's 100 lines that end in a tokenized period ('.')"
    assert [record.msg for record in caplog.records].count(said) == times
    assert logging.getLogger("sacrebleu").filters == []


@pytest.mark.parametrize(
    ("hypotheses", "references", "tokenize", "said"),
    [
        (["a", "b"], ["a", "b", "c"], "13a", "2 hypotheses, 3 references"),
        ([], [], "13a", "0 hypotheses, 0 references"),
        (["a", "b"], [["a"], ["b", "c"]], "13a", "the same number of references"),
        (["a"], ["a"], "14a", "13a.*ja-mecab.*Received: tokenize='14a'"),
    ],
)
def test_what_cannot_be_measured_is_refused(hypotheses, references, tokenize, said):
    with pytest.raises(UserError, match=said):
        measure(hypotheses, references, tokenize)
