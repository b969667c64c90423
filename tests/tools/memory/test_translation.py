"""A translator that needs no model writes capitals; the memory answers in small letters."""

import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer.errors import UserError
from keras_transformer.tags import LanguageTags
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.memory.alignment import explained
from keras_transformer.tools.memory.matches import Memory
from keras_transformer.tools.memory.translation import MemoryTranslator
from keras_transformer.translation.lines import of_one_or_many
from keras_transformer.translation.results import Explanation, Translation
from tests.tools.documents.fake import UPPER, WordByWord

PAIRS = [("One two", "eins zwei"), ("one house", "ein haus"), ("see here now", "sieh jetzt hier")]


class Loud(WordByWord):
    """Remembers how it was asked."""

    width = 3

    def __init__(self, tags=None):
        super().__init__(str.upper)
        self.asked, self.tags = [], tags

    @of_one_or_many
    def translate_scored(self, texts, on_progress=None, **options):
        self.asked.append((texts, options))
        if on_progress:
            on_progress(len(texts))
        return [Translation(text.upper(), -1.5) for text in texts]

    def translate(self, texts, on_progress=None, **options):
        return [found.text for found in self.translate_scored(texts, on_progress, **options)]

    def alternatives(self, texts, on_progress=None):
        return [[Translation(text, -n) for n, text in enumerate((text.upper(), "eins zwei", "c"))] for text in texts]


def with_memory(translator, threshold=100):
    return MemoryTranslator(translator, Memory(PAIRS, threshold))


def test_the_memory_answers_what_it_has_and_the_model_all_else_in_order():
    translator, counted = with_memory(loud := Loud()), []
    texts = ["three", "One two", "", "one two", "  One  two\t"]
    assert translator.translate(texts, counted.append) == ["THREE", "eins zwei", "", "ONE TWO", "  eins zwei\t"]
    assert loud.asked == [(["three", "one two"], {})] and sum(counted) == 5
    assert translator.counts == Counter({"texts": 4, "exact": 2, "similar": 0})
    assert translator.translate_scored(["One two", "x"]) == [Translation("eins zwei", 0), Translation("X", -1.5)]
    assert translator.translate("One two") == "eins zwei" and translator.width == 3
    assert len(loud.asked) == 2  # never for nothing


def test_options_of_each_text_stay_with_their_text_and_languages_of_a_call_need_the_model():
    translator = with_memory(loud := Loud())
    translator.translate(["a", "One two", "b"], beam_size=[1, 2, 3], prefix="x")
    assert loud.asked == [(["a", "b"], {"beam_size": [1, 3], "prefix": "x"})]
    assert translator.translate(["One two"], target_lang=["fr"]) == ["ONE TWO"]


class BySentence(Loud):
    """Divides texts behind a stop, and is less sure of longer ones."""

    def fragments(self, texts):
        return [re.split(r"(?<=[.。])(\s*)", text) for text in texts]

    def translate_scored(self, texts, on_progress=None, **options):
        found = super().translate_scored(texts, on_progress, **options)
        return [Translation(text, -float(len(text))) for text, _ in found]


SENTENCES = [("One two.", "Eins, zwei."), ("Three.", "Drei."), ("一。", "Eins。"), ("二。", "Zwei.")]
SENTENCES += [("x. y.", "X and y.")]


def test_sentences_take_their_translation_from_the_memory_and_the_model_translates_what_is_between_them():
    translator, counted = MemoryTranslator(loud := BySentence(), Memory(SENTENCES)), []
    texts = ["a. b. One  two.\tc.\n", "Three. Three.", "d. x. y.", "x. y.", " ", "Three. e."]
    found = translator.translate_scored(texts, counted.append, beam_size=[1, 2, 3, 4, 5, 6])
    expected = [("A. B. Eins, zwei.\tC.\n", -6), ("Drei. Drei.", 0)]
    expected += [("D. X. Y.", -8), ("X and y.", 0)]  # an entry of two sentences is a whole text
    assert found == [*expected, (" ", 0), ("Drei. E.", -3)]
    assert loud.asked == [(["a. b. ", "\tc.\n", "d. x. y.", " e."], {"beam_size": [1, 1, 3, 6]})]
    assert translator.counts == Counter({"texts": 5, "exact": 1, "similar": 0, "in_part": 3, "sentences": 4})
    assert sum(counted) == len(texts) and min(counted) >= 0
    assert translator.translate("Three. f.") == "Drei. F."
    similar = MemoryTranslator(BySentence(), Memory(SENTENCES, 40))
    recalled = [[match.source for match in row] for row in similar.recall(["Three. g.", "Three.", "f. g."])]
    assert recalled == [["Three.", "Three."], ["Three."], ["x. y."]]  # equal to a sentence, and similar to the text
    # Without space between them, they get some where their translations need it.
    found = translator.translate(["一。二。一。", "二。a。二。b", "一。a"])
    assert found == ["Eins。Zwei. Eins。", "Zwei. A。Zwei. B", "Eins。A"]


def test_a_text_is_not_divided_for_a_prefix_for_alternatives_and_for_tags_inside():
    translator = MemoryTranslator(loud := BySentence(), Memory(SENTENCES))
    assert translator.translate("Three. a.", prefix="p") == "THREE. A."
    assert translator.translate(["Three. a."], target_lang=["fr"]) == ["THREE. A."]
    assert [options for _, options in loud.asked] == [{"prefix": "p"}, {"target_lang": ["fr"]}]
    assert translator.alternatives("Three. a.")[0].text == "THREE. A."
    found = translate_bytes(translator, b"<p>Three. <b>a</b></p><p>Three. a</p>", "html")
    assert found == b"<p>THREE. <b>A</b></p><p>Drei. A</p>"


def test_similar_entries_are_shown_and_counted_and_never_used_and_an_answer_is_the_first_alternative_once():
    translator = with_memory(Loud(), 60)
    assert translator.translate(["One twa", "xyz"]) == ["ONE TWA", "XYZ"]
    assert translator.recall(["One twa", "xyz"]) == [[("One two", "eins zwei", 85)], []]
    assert translator.counts == Counter({"texts": 2, "exact": 0, "similar": 1})
    found = with_memory(Loud()).alternatives(["One two", "x"])
    assert [[text for text, _ in row] for row in found] == [["eins zwei", "ONE TWO", "c"], ["X", "eins zwei", "c"]]
    assert [score for _, score in found[0]] == [0, 0, -2]


def test_a_text_that_names_its_language_is_for_the_model():
    tags = LanguageTags("source", {"en": 1}, {"fr": 5, "de": 6}, ("en", "de"))
    memory = Memory([("One two", "eins zwei"), (">>fra<< One two", "wrong"), ("<2xx> One two", "right")], 50)
    translator = MemoryTranslator(Loud(tags), memory)
    texts = ["One two", ">>fra<< One two", "<2fr> One two", "<2xx> One two"]
    assert translator.translate(texts) == ["eins zwei", ">>FRA<< ONE TWO", "<2FR> ONE TWO", "right"]
    assert [bool(found) for found in translator.recall(texts)] == [True, False, False, True]


def test_between_other_languages_there_is_no_memory():
    tags = {target: LanguageTags("source", {"en": 1}, {"fr": 5, "de": 6}, ("en", target)) for target in ("fr", "de")}
    loud = Loud(tags["de"])
    loud.between = lambda source_lang=None, target_lang=None: Loud(tags[target_lang or "de"])
    translator = with_memory(loud)
    assert translator.between(None, "de").translate(["One two"]) == ["eins zwei"]
    assert translator.between(target_lang="fr").translate(["One two"]) == ["ONE TWO"]
    assert translator.counts["exact"] == 1
    with pytest.raises(AttributeError):
        _ = with_memory(Loud()).between


def test_every_unit_of_a_document_is_looked_up_with_tags_and_without():
    page = b"<p title='One two'>One two</p><p>see <b>here</b> now</p><p>One <i>thing</i></p>"
    translator = with_memory(UPPER)
    found = translate_bytes(translator, page, "html")
    expected = b"<p title='eins zwei'>eins zwei</p><p>sieh <b>jetzt</b> hier</p><p>ONE <i>THING</i></p>"
    assert found == expected  # no word of the memory is one of the model: the place in the sentence decides
    assert translator.counts == Counter({"texts": 4, "exact": 3, "similar": 0})
    german = {"see": "sieh", "here": "hier", "now": "jetzt"}
    found = translate_bytes(with_memory(WordByWord(lambda word: german.get(word, word))), page, "html")
    assert b"<p>sieh jetzt <b>hier</b></p>" in found  # the word to which the model would give the tag
    assert translator.explain("see here now").pieces == ["▁sieh", "▁jetzt", "▁hier"]


def test_a_message_with_variables_is_remembered_if_its_translation_has_the_same_ones():
    for flag, text, translation, found in (
        ("python-brace", "Move {0} to {1}", "Nach {1} kommt {0}", "Nach {1} kommt {0}"),
        ("c", "%s or %d", "%s oder %d", "%s oder %d"),
        ("c", "%s or %d", "%d oder %s", "%s OR %d"),  # they take their values in order
        ("c", "%s or %d", "%2$d oder %1$s", "%s OR %d"),
        ("python-brace", "Move {0}", "Weg", "MOVE {0}"),
        ("c", "Open %s\\n", "Auf: %s", "Auf: %s\\n"),
        ("c", "Open", "Auf", "Auf"),
    ):
        translator = MemoryTranslator(UPPER, Memory([(text.removesuffix("\\n"), translation)]))
        data = f'\n#, {flag}-format\nmsgid "{text}"\nmsgstr ""\n'.encode()
        assert f'msgstr "{found}"' in translate_bytes(translator, data, "po").decode()
        assert translator.counts["exact"] == found.startswith(translation)


def coded(tmp_path, source, target):
    path = tmp_path / "memory.tmx"
    units = f'<tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="de"><seg>{target}</seg></tuv>'
    path.write_text(f"<tmx><body><tu>{units}</tu></body></tmx>", encoding="utf-8")
    return MemoryTranslator(UPPER, Memory.open(path, "en", "de"))


def test_codes_of_an_entry_place_the_tags_and_one_before_a_sign_matches(tmp_path):
    for source, page, target, right in (
        ("A (1)b(/1) c", "<p> A <b>b</b> c </p>", "d e f (1)g(/1)", "<p> d e f <b>g</b> </p>"),
        ("(2)a(/2) b (1)c d(/1)", "<b>a</b> b <i>c d</i>", "b (1)c d(/1) (2)e(/2)", "b <i>c d</i> <b>e</b>"),
        ("a <ph/>!", "a <kbd>x</kbd>!", "c d <ph/>!", "c d <kbd>x</kbd>!"),
        ("a (1)b(/1) <it pos='begin'/>c d", "a <b>b</b> <br>c d", "(1)e(/1) f <it pos='begin'/>g", "<b>e</b> f <br>g"),
        ("a <ept i='1'/>b<bpt i='2'/>", "a <b>b</b>", "c d", "c <b>d</b>"),  # no pairs
    ):
        marked = [
            re.sub(r"\((\d)\)(.*?)\(/\1\)", rf"<bpt i='{side}\1' x='\1'>[</bpt>\2<ept i='{side}\1'>]</ept>", text)
            for side, text in (("1", source), ("2", target))
        ]
        assert translate_bytes(coded(tmp_path, *marked), page.encode(), "html").decode() == right


def test_a_message_is_found_with_its_codes_as_they_are_written(tmp_path):
    translator = coded(tmp_path, "Hello <ph>%s</ph>!", "Guten Tag, <ph>%s</ph>!")
    for message, right in (("Hello %s!", "Guten Tag, %s!"), ("Hello %s?", "HELLO %s?")):
        catalogue = f'msgid "{message}"\nmsgstr "'
        assert f'msgstr "{right}"' in translate_bytes(translator, f'{catalogue}"\n'.encode(), "po").decode()
    assert translator.translate("Hello %s!") == "Guten Tag, %s!"
    assert coded(tmp_path, "Hi <ph>%s</ph>", "Tag <ph>%d</ph>").translate("Hi %s") == "HI %S"


def test_a_translator_that_does_not_explain_still_does_not():
    translator = with_memory(SimpleNamespace(translate_scored=UPPER.translate_scored))
    assert translate_bytes(translator, b"<p>One two</p>", "html") == b"<p>eins zwei</p>"
    with pytest.raises(UserError, match="tags inside a sentence need alignments"):
        translate_bytes(translator, b"<p>see <b>here</b> now</p>", "html")


def test_words_of_both_translations_come_from_where_the_model_says():
    sides = ["▁the", "▁red", "▁ho", "use", ".", "</s>"], ["▁Ha", "us", "▁rotes", "▁das", ".", "</s>"]
    of_model = Explanation(*sides, None, np.float32(np.eye(6)[[2, 3, 1, 0, 4, 5]]))
    found = explained("The red house.", "das rote Haus.", of_model)
    assert found.source_pieces == ["▁The", "▁red", "▁house", "."] and found.pieces == ["▁das", "▁rote", "▁Haus", "."]
    assert found.alignment.argmax(axis=1).tolist() == [0, 1, 2, 3]  # "rote": the one that is left
    assert np.allclose(found.alignment.sum(axis=1), 1) and found.token_scores.tolist() == [0] * 4
    found = explained("The red house.", "Haus, 赤い das", of_model)
    assert found.pieces == ["▁Haus", ",", "▁赤", "い", "▁das"]
    assert found.alignment.argmax(axis=1)[[0, 4]].tolist() == [2, 0]
