import functools

import pytest
import tensorflow as tf

from keras_transformer.data.full_stops import UNKNOWN, Known
from keras_transformer.normalization import mend
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tokenizer import Tokenizer, train_tokenizer, without_piece
from keras_transformer.translation.segments import divide_into_parts, split_at
from keras_transformer.translation.sentences import divisions_of
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.sentences import SENTENCES

QUOTED = ['"It" - ' + "'is'"] * 9
LATIN = ["It is 25°, (one) & “two” – + Über José's côté.", "Bäume, Züge; 5 % & 3 – 4: naïve?"] * 9
CYRILLIC = ["Он ушёл домой, а она пришла №5."] * 9
KNOWN = Known(copies_unknown=False)


@functools.cache
def tokenizer(of="latin", **options):
    text = {"latin": LATIN + QUOTED, "cyrillic": CYRILLIC}[of]
    return Tokenizer(train_tokenizer(text, 400, character_coverage=1.0, **options))


def test_signs_without_a_piece_and_letters_of_other_scripts_are_unknown():
    unknown = without_piece([tokenizer()])
    assert {*"§※★→©™№¶†‡…😀🇩Ωж水कสאש가ハ\uf0b7"} <= unknown
    assert not {*"°&“”–(),.;:%?'aZñŁẞ5²½\u0301\uffff\ufdd0\ufffe"} & unknown  # letters of a known script, too


def test_what_another_tokenizer_knows_mends_or_keeps_is_known():
    """One with NFKC makes it something known, one has it as a piece, one has placeholders, one is of bytes alone."""
    assert {*"（℃⟦жΩ"} <= without_piece([tokenizer()]) and "（" not in without_piece([tokenizer(nfkc=True)])
    assert "⟦" not in without_piece([tokenizer(placeholders=PLACEHOLDERS)])
    both = without_piece([tokenizer(), tokenizer("cyrillic")])
    assert not {*"ж№&–"} & both and "Ω" in both
    bytes_alone = Tokenizer(train_tokenizer(["5 5"] * 9, 400))
    assert not without_piece([bytes_alone]) and not without_piece([tokenizer(), bytes_alone])


def test_a_character_in_bytes_is_counted_once():
    ids = tokenizer().encode(["one ж 水 two 😀 𝄞 é"]).values.numpy()
    assert sum(id in tokenizer().first_bytes for id in ids) == 4


# A text, and its fragments. The model reads those between |, and all others stay as they are.
DIVIDED = {
    "※ Bäume one": "※ |Bäume one|",
    "§Bäume one ★": "§|Bäume one| ★",
    "Bäume one…": "|Bäume one|…",
    "Ω one 今天": "Ω |one| 今天",
    "It is here. 今天 We go. Ω": "|It is here.| 今天 |We go.| Ω",
    "It is here! It is": "|It is here|! |It is|",
    "one ★ two": "|one| ★ |two|",
    "one 今天, two": "|one| 今天|, two|",
    "Tur★key \U000f0001": "|Tur|★|key| \U000f0001",
    "one 👩‍🚀 🇩🇪 two": "|one| 👩‍🚀 🇩🇪 |two|",
    "1\ufe0f\u20e3 one": "|1|\ufe0f\u20e3 |one|",
    "one\n※\ntwo ※\r\n three": "|one|\n※\n|two| ※\r\n |three|",
    "& one – two": "|& one – two|",
    "25° & 3 – 4 + 5": "|25° & 3 – 4 + 5|",
    "one ° two": "|one ° two|",
    "ko\u0301mt": "|ko\u0301mt|",
    "(ж) “Привет!”": "(ж) “Привет!”",
    "Bäume „one‟ — two": "|Bäume „one‟ — two|",
}
READ = {"Bäume „one‟ — two": 'Bäume "one" - two', "ko\u0301mt": "kómt"}


def divided(division, text):
    """A text as in `DIVIDED`, and what the model reads of it."""
    found, read = "", []
    for part in (part.decode() for part in split_at(division.breaks, tf.constant([text])).to_list()[0]):
        is_copied = bool(tf.strings.regex_full_match(part, division.copied))
        found += part if is_copied else f"|{part}|"
        read += [] if is_copied else [part]
    parts = divide_into_parts(tf.constant([text]), tokenizer(), 97, division)
    assert b"".join(parts.fragments.to_list()[0]).decode() == text
    return found, [each.decode() for each in tokenizer().decode(parts.ids).numpy().tolist()], read


@pytest.mark.parametrize("text", DIVIDED)
def test_a_character_without_a_piece_stays_where_it_is_and_divides_its_sentence(text):
    source, target = divisions_of(tokenizer(), tokenizer(), True, KNOWN)
    found, decoded, read = divided(source, text)
    assert found == DIVIDED[text] and decoded == [READ.get(text, part.strip()) for part in read]
    assert source.respelled and not target.respelled  # a given translation is scored as it is


@pytest.mark.parametrize("known", [UNKNOWN, KNOWN._replace(copies_unknown=True)])
def test_a_model_that_copies_such_characters_reads_them(known):
    source, _ = divisions_of(tokenizer(), tokenizer(), True, known)
    parts = divide_into_parts(tf.constant(["one ★ two ж."]), tokenizer(), 97, source)
    assert tokenizer().decode(parts.ids).numpy() == ["one ★ two ж.".encode()]


def test_a_translation_keeps_every_sign_at_its_place():
    translator = Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=1, max_length=31, known=KNOWN)
    (learned, _), other = tiny.learned_pairs()[0], "ж"
    expected = translator.translate(learned)
    texts = [f"※ {learned} …", f"№{learned} Ω", f"{learned} + {learned}", f"{learned}\n\n* {learned}", other]
    assert translator.translate(texts) == [
        f"※ {expected} …", f"№{expected} Ω", f"{expected} + {expected}", f"{expected}\n\n* {expected}", other
    ]  # fmt: skip
    scores = translator.score(texts[:3], translator.translate(texts[:3]))
    found = translator.translate_scored(texts[:3])
    assert [score.score for score in scores] == pytest.approx([each.score for each in found], abs=1e-4)


@pytest.mark.parametrize("language", ["French, decomposed", "Arabic", "Hindi", "Thai", "Korean, decomposed"])
def test_a_model_reads_all_of_the_languages_that_its_tokenizer_knows(language):
    text = SENTENCES[language].text
    own = Tokenizer(train_tokenizer([text] * 9, 400, character_coverage=1.0))
    division, _ = divisions_of(own, own, True, KNOWN)
    parts = divide_into_parts(tf.constant([text]), own, 97, division)
    assert own.decode(parts.ids).numpy().tolist() == [mend(text).encode()]
