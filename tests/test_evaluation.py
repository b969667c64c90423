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
    """BLEU where the package of Japanese is not installed."""
    if trg_lang == "ja" or tokenize == "ja-mecab":
        raise RuntimeError("\nInstall it:\n\n  pip install sacrebleu[ja]\n")
    return BLEU(**arguments, **({"tokenize": tokenize} if tokenize else {}))


without_packages.TOKENIZER_DEFAULT, without_packages.TOKENIZERS = "13a", {"ja-mecab"}


def test_a_package_that_the_language_or_the_tokenization_needs_is_named_in_one_line(caplog, monkeypatch):
    monkeypatch.setattr(keras_transformer.evaluation, "BLEU", without_packages)
    for _ in range(2):
        evaluation = measure(["私は毎日学校に行きます。"], ["私は毎日学校に行きます。"], target_lang="ja")
    assert evaluation.bleu == pytest.approx(100) and "|tok:char|" in evaluation.bleu_signature
    install = "Install it: pip install sacrebleu[ja]"
    assert caplog.messages == [f"BLEU cannot use sacreBLEU's own tokenization for ja: {install}"]  # once
    with pytest.raises(UserError, match=r"^tokenize='ja-mecab' cannot be used: Install it: pip install sacre\S+$"):
        measure(["a"], ["a"], tokenize="ja-mecab")


UNKNOWN = "CLDR knows no language 'klingon', so BLEU divides words by tok:13a"


@pytest.mark.parametrize(
    ("tokenize", "target_lang", "reference", "said"),
    [
        ("auto", "klingon", "one two three four.", UNKNOWN),
        ("auto", "deu", "one two three four.", None),
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


def test_only_unasked_tokenization_is_warned_of_once_and_sacrebleu_is_left_as_it_was(caplog):
    with caplog.at_level(logging.WARNING, "sacrebleu"):
        for tokenize in ("none", "13a", "13a"):
            measure(["a ."] * 100, ["a ."] * 100, tokenize)
            said = [record.msg for record in caplog.records]
            assert said.count("That's 100 lines that end in a tokenized period ('.')") == (tokenize == "13a")
    assert logging.getLogger("sacrebleu").filters == []


@pytest.mark.parametrize(
    ("hypotheses", "references", "tokenize", "said"),
    [
        ("a", ["a"], "13a", "`hypotheses` must be a list, with one for each text. Received: 'a'"),
        ([], [], "13a", "0 hypotheses, 0 references"),
        (["a", "b"], [["a"], ["b", "c"]], "13a", "the same number of references"),
        (["a"], ["a"], "14a", "13a.*ja-mecab.*Received: tokenize='14a'"),
    ],
)
def test_what_cannot_be_measured_is_refused(hypotheses, references, tokenize, said):
    with pytest.raises(UserError, match=said):
        measure(hypotheses, references, tokenize)
