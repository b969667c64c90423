import functools

import pytest
import tensorflow as tf

from keras_transformer.data.full_stops import UNKNOWN, Known
from keras_transformer.normalization import mend
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tokenizer import Tokenizer, train_tokenizer, unknown_to
from keras_transformer.translation.segments import divide_into_parts, split_at
from keras_transformer.translation.sentences import divisions_of
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.sentences import SENTENCES

LATIN = ["It is 25°, (one) & “two” – + Über José's côté.", "Bäume, Züge; 5 % & 3 – 4: naïve?"] * 9
CYRILLIC = ["Он ушёл домой, а она пришла №5."] * 9
KNOWN = Known(copies_unknown=False, lone_symbols="+")


@functools.cache
def tokenizer(of="latin", **options):
    text = {"latin": LATIN, "cyrillic": CYRILLIC}[of]
    return Tokenizer(train_tokenizer(text, 400, character_coverage=1.0, **options))


def is_in(ranges, character):
    return bool(tf.strings.regex_full_match(character, f"[{ranges}]"))


def test_signs_without_a_piece_and_letters_of_other_scripts_are_unknown():
    unknown = unknown_to([tokenizer()])
    assert [c for c in "§※★→©™№¶†‡…😀🇩Ωж水कสאש가ハ" if not is_in(unknown.signs, c)] == []
    known = "°&“”–(),.;:%?'aZñŁẞ5²½\u0301\uffff\ufdd0\ufffe"  # letters of a known script, numbers and accents
    assert [c for c in known if is_in(unknown.signs, c) or is_in(unknown.marks, c)] == []


def test_what_another_tokenizer_knows_mends_or_keeps_is_known():
    """One with NFKC makes it something known, one has it as a piece, one has placeholders, one is of bytes alone."""
    own = unknown_to([tokenizer()]).signs
    assert all(is_in(own, character) for character in "（℃⟦жΩ")
    assert not is_in(unknown_to([tokenizer(nfkc=True)]).signs, "（")
    assert not is_in(unknown_to([tokenizer(placeholders=PLACEHOLDERS)]).signs, "⟦")
    both = unknown_to([tokenizer(), tokenizer("cyrillic")])
    assert not any(is_in(both.signs, character) for character in "ж№&–") and is_in(both.signs, "Ω")
    bytes_alone = Tokenizer(train_tokenizer(["5 5"] * 9, 400))
    assert not any(unknown_to([bytes_alone], "")) and not any(unknown_to([tokenizer(), bytes_alone], ""))


def test_a_character_in_bytes_is_counted_once():
    ids = tokenizer().encode(["one ж 水 two 😀 𝄞 é"]).values.numpy()
    assert sum(id in tokenizer().first_bytes for id in ids) == 4


# A text, its fragments, and what the model reads: "" of what is copied.
DIVIDED = {
    "※ Bäume one": ["", "※ ", "Bäume one"],
    "§Bäume one ★": ["", "§", "Bäume one", " ★", ""],
    "Bäume one…": ["Bäume one", "…"],
    "Ω one 今天": ["", "Ω ", "one", " 今天", ""],
    "It is here. 今天 We go. Ω": ["It is here.", " 今天 ", "We go.", " Ω", ""],
    "It is here! It is": ["It is here", "! ", "It is"],
    "one ★ two": ["one ★ two"],
    "one\n※\ntwo ※\r\n three": ["one", "\n※\n", "two", " ※\r\n ", "three"],
    "° one\n° two °": ["", "° ", "one", "\n° ", "two", " °", ""],
    "& one – two": ["& one – two"],
    "– one (": ["– one ("],
    "25° one": ["25° one"],
    "(ж) “Привет!”": ["(ж) “Привет!”"],
}


@pytest.mark.parametrize("known", [KNOWN, KNOWN._replace(copies_unknown=True)])
def test_unknown_characters_around_a_sentence_belong_to_the_white_space(known):
    division, _ = divisions_of(tokenizer(), tokenizer(), True, known)
    found = split_at(division.breaks, tf.constant([*DIVIDED])).to_list()
    assert [[part.decode() for part in row if part] for row in found] == [
        [part for part in parts if part] for parts in DIVIDED.values()
    ]


READ = {
    "one ★ two": "one two",
    "one 今天, two": "one, two",
    "Tur★key": "Turkey",
    "one 👩‍🚀 🇩🇪 two": "one two",
    "1\ufe0f\u20e3 one": "1 one",
    "one ° two": "one two",
    "25° & 3 – 4 + 5": "25° & 3 – 4 + 5",
    "ko\u0301mt": "kómt",
    "Привет!": "",
    "(ж) “Привет!”": "",
    "§ 5 ½ one": "5 ½ one",
}


def test_the_model_does_not_read_unknown_characters_inside_a_sentence():
    source, target = divisions_of(tokenizer(), tokenizer(), True, KNOWN)
    for text, read in READ.items():
        parts = divide_into_parts(tf.constant([text]), tokenizer(), 97, source)
        assert tokenizer().decode(parts.ids).numpy().tolist() == ([read.encode()] if read else [])
    assert source.unread and not target.unread  # a given translation is scored as it is


@pytest.mark.parametrize("known", [UNKNOWN, KNOWN._replace(copies_unknown=True)])
def test_a_model_that_copies_unknown_characters_reads_them(known):
    source, _ = divisions_of(tokenizer(), tokenizer(), True, known)
    parts = divide_into_parts(tf.constant(["one ★ two ж."]), tokenizer(), 97, source)
    assert tokenizer().decode(parts.ids).numpy() == ["one ★ two ж.".encode()]


def test_translations_keep_signs_around_and_lose_those_inside():
    translator = Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=1, max_length=31, known=KNOWN)
    (learned, _), other = tiny.learned_pairs()[0], "ж"
    first, *rest = learned.split(" ")
    expected, inside = translator.translate(learned), " ".join([first, "★", *rest])
    texts = [f"※ {learned} …", f"№{learned} Ω", inside, f"{learned}\n\n* {learned}", other]
    assert translator.translate(texts) == [
        f"※ {expected} …", f"№{expected} Ω", expected, f"{expected}\n\n* {expected}", other
    ]  # fmt: skip
    scores = translator.score(texts[:2], translator.translate(texts[:2]))
    found = translator.translate_scored(texts[:2])
    assert [score.score for score in scores] == pytest.approx([each.score for each in found], abs=1e-4)


@pytest.mark.parametrize("language", ["French, decomposed", "Arabic", "Hindi", "Thai", "Korean, decomposed"])
def test_a_model_reads_all_of_the_languages_that_its_tokenizer_knows(language):
    text = SENTENCES[language].text
    own = Tokenizer(train_tokenizer([text] * 9, 400, character_coverage=1.0))
    division, _ = divisions_of(own, own, True, KNOWN)
    parts = divide_into_parts(tf.constant([text]), own, 97, division)
    assert own.decode(parts.ids).numpy().tolist() == [mend(text).encode()]
