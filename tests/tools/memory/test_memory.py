"""Memories and their files; a translator that needs no model writes capitals, the memory answers in small letters."""

import dataclasses
import gzip
import re
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.errors import FileError, UserError
from keras_transformer.tags import LanguageTags
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.memory.matches import Match, Memory, check
from keras_transformer.tools.memory.tmx import read_units
from keras_transformer.tools.memory.translation import MemoryTranslator
from keras_transformer.translation.lines import of_one_or_many
from keras_transformer.translation.results import Translation
from tests.tools.documents.fake import UPPER, WordByWord


def write(path, *units):
    """Writes a memory: each unit is a dict from the code of a language to a text."""
    rows = ["".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in unit.items()) for unit in units]
    path.write_text(f"<tmx><body>{''.join(f'<tu>{row}</tu>' for row in rows)}</body></tmx>", encoding="utf-8")
    return path


def translations(memory, *texts):
    return [[match.translation for match in found] for found in memory.find(texts)]


def test_texts_are_equal_if_the_model_reads_them_alike():
    for source, text, is_equal in (
        ("one\ttwo", " one \u3000 two\u200b ", True),
        ("Cafe\u0301", "Caf\u00e9", True),
        ("one two", "one two.", False),
        ("one two", "onetwo", False),
        ("\u0646\u0645\u06cc\u200c\u062e", "\u0646\u0645\u06cc\u062e", False),  # a joiner is seen
    ):
        assert Memory([(source, "x")]).find([text]) == [[Match(source, "x", 100)] if is_equal else []]


def test_the_last_of_equal_sources_counts_and_blank_sides_do_not_and_three_similar_ones_are_shown_at_most():
    memory = Memory([("one", "a"), ("one ", "b"), ("one", " "), ("", "c"), ("\u200b", "d")])
    assert translations(memory, "one", "", " ") == [["b"], [], []] and len(memory) == 1
    memory = Memory([(f"word {n}", str(n)) for n in range(9)], 50)
    assert translations(memory, "word 5", "word X") == [["5"], ["0", "1", "2"]]


def distance(one, other):
    """The Levenshtein distance of two texts, from its definition."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
    return row[-1]


def percent(one, other):
    """The similarity of two texts, rounded down."""
    longer = max(len(one), len(other))
    return 100 * (longer - distance(one, other)) // longer


@settings(max_examples=60)
@given(st.text("aB ö本", max_size=9), st.lists(st.text("aB ö本", max_size=9), max_size=9), st.integers(1, 99))
def test_the_most_similar_entries_by_the_definition_come_best_first_down_to_the_threshold(text, sources, threshold):
    mended = {" ".join(source.split()): source for source in sources if source.strip()}
    key = " ".join(text.split())
    found = Memory([(source, source.title()) for source in sources], threshold).find(text)
    assert all(match.translation == match.source.title() for match in found)
    if key in mended:
        assert found == [Match(mended[key], mended[key].title(), 100)]
    else:
        of_sources = [percent(key, source) for source in mended if key]
        kept = sorted((each for each in of_sources if each >= threshold), reverse=True)
        assert [match.match for match in found] == kept[:3]
        assert [percent(key, " ".join(match.source.split())) for match in found] == kept[:3]


def test_of_equal_sources_the_last_file_counts_and_in_a_file_the_last_change(tmp_path):
    unit = '<tu {}><tuv xml:lang="en" {}><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
    rows = [
        ('changedate="20250101T000000Z"', "", "one", "by its unit"),
        ("", "", "one", "never"),
        ("", 'creationdate="20240101T000000Z"', "one", "older"),
        ("", 'changedate="20220202T000000Z" creationdate="20200101T000000Z"', "two", "zwei"),
        ("", 'changedate="20220101T000000Z" creationdate="20210101T000000Z"', "two", "created later"),
        ("", "", "three", "first"),
        ("", "", "three", "drei"),
    ]
    paths = [tmp_path / "dates.tmx", write(tmp_path / "new.tmx", {"en": "one", "de": "eins"})]
    paths[0].write_text(f"<tmx><body>{''.join(unit.format(*row) for row in rows)}</body></tmx>")
    memory = Memory.open(paths[0], "en", "de")
    assert translations(memory, "one", "two", "three") == [["by its unit"], ["zwei"], ["drei"]]
    assert translations(Memory.open(paths, "en", "de"), "one") == [["eins"]]
    assert translations(Memory.open(paths[::-1], "en", "de"), "one") == [["by its unit"]]


def test_languages_are_those_of_the_codes_by_language_and_script(tmp_path):
    units = [{"EN-US": "one", "de-DE": "eins"}, {"en": "one", "pt-PT": "pt-PT"}, {"en": "one", "pt-BR": "of pt-BR"}]
    units += [{"en": "one", "zh-TW": "zh-TW", "zh-CN": "zh-CN", "sr_Latn_RS": "sr_Latn_RS", "X-Elvish": "elvish"}]
    path = write(tmp_path / "a.tmx", *units)
    for target, translation in (
        ("deu", "eins"),  # the only pair of these languages
        ("pt", "of pt-BR"),
        ("pt-PT", "pt-PT"),
        ("zh-Hant", "zh-TW"),
        ("sr-Latn", "sr_Latn_RS"),
        ("x-elvish", "elvish"),
    ):
        assert translations(Memory.open(path, "eng_Latn", target), "one", "eins") == [[translation], []]
    assert translations(Memory.open(path, "de", "EN"), "one", "eins") == [[], ["one"]]  # another source


def test_the_code_itself_comes_before_others_in_a_unit_and_in_a_file(tmp_path):
    path = write(tmp_path / "a.tmx", {"en": "one", "de": "a"}, {"en-GB": "one", "de-AT": "b", "de-CH": "c"})
    assert translations(Memory.open(path, "en", "de"), "one") == [["a"]]
    assert translations(Memory.open(path, "en-GB", "de-CH"), "one") == [["c"]]
    other = write(tmp_path / "b.tmx", {"en": "one", "de": "d"})
    assert translations(Memory.open([path, other], "en", "de"), "one") == [["d"]]
    # A text comes before one that has lost its code.
    units = [{"en": "Delete", "de": "Löschen"}, {"en": "Delete <ph>{0}</ph>", "de": "<ph>{0}</ph> löschen"}]
    for order in (units, units[::-1]):
        assert translations(Memory.open(write(tmp_path / "a.tmx", *order), "en", "de"), "Delete") == [["Löschen"]]
    assert translations(Memory.open(write(tmp_path / "a.tmx", units[1]), "en", "de"), "Delete") == [["löschen"]]


def test_a_file_without_a_unit_and_a_threshold_out_of_range_are_refused(tmp_path):
    check([write(tmp_path / "a.tmx", {"en": "one"})], 50)
    with pytest.raises(UserError, match="b.tmx has no unit"):
        check([tmp_path / "a.tmx", write(tmp_path / "b.tmx")])
    for threshold in (0, 101):
        with pytest.raises(UserError, match=f"`threshold` must be between 1 and 100. Received: threshold={threshold}"):
            Memory([], threshold)


HEADER = '<header adminlang="en"\n srclang="*all*" datatype="plaintext"><note xml:lang="en">no text</note></header>'


def tmx(*segments, doctype='<!DOCTYPE tmx SYSTEM "tmx14.dtd">', declaration='<?xml version="1.0"?>'):
    """A memory of one unit for each segment, in English."""
    units = "".join(f'<tu><tuv xml:lang="en"><seg>{segment}</seg></tuv></tu>\n' for segment in segments)
    return f'{declaration}{doctype}<tmx version="1.4">{HEADER}<body>{units}</body></tmx>'


def read(tmp_path, data, name="memory.tmx"):
    (path := tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return [[segment[:4] for segment in unit] for unit in read_units(path)]


def texts(tmp_path, data, name="memory.tmx"):
    return [segment[1] for unit in read(tmp_path, data, name) for segment in unit]


def test_the_text_of_a_segment_has_no_code_and_one_space_for_white_space(tmp_path):
    for segment, text in (
        ("\n   one\n\ttwo  ", "one two"),
        ("one\u00a0: two", "one\u00a0: two"),  # no white space of XML
        ("a &lt;b&gt; &amp; c &#x4E2D;", "a <b> & c 中"),
        ("<![CDATA[a < b]]><!-- comment --><?pi x?>", "a < b"),
        ('The <bpt i="1" x="1">&lt;b&gt;</bpt>red<ept i="1">&lt;/b&gt;</ept> house', "The red house"),
        ('<it pos="begin">{\\b</it>Bold <hi type="term">term <ph x="1">%s</ph>here</hi>', "Bold term here"),
        ('See<ph x="1">[note: <sub datatype="html">a <bpt i="1">b</bpt>note</sub>]</ph> below', "See below"),
        ('one<ph type="lb">&lt;br/&gt;</ph>two', "one two"),
        ("", ""),
    ):
        assert texts(tmp_path, tmx(segment, "next")) == [text, "next"]


def test_a_unit_has_a_text_in_each_language_under_either_attribute(tmp_path):
    data = f"""<tmx version="1.1">{HEADER}<body>
    <tu tuid="1" lang="fr"><prop type="x">no text</prop>
      <tuv lang="EN"><note>none</note><seg>one</seg></tuv>
      <tuv xml:lang="de-AT" lang="x"><prop type="y">none</prop><seg>eins</seg></tuv>
      <tuv><seg>without a language</seg></tuv></tu>
    <tu><tuv xml:lang="fr"><seg>un</seg></tuv></tu></body></tmx>"""
    units = [[("EN", "one", True, ""), ("de-AT", "eins", True, "")], [("fr", "un", True, "")]]
    assert read(tmp_path, data) == units
    prefixed = data.replace("<", "<t:").replace("<t:/", "</t:").replace("tmx v", 'tmx xmlns:t="u" v')
    assert read(tmp_path, prefixed) == units


def test_a_file_is_read_in_its_charset_packed_or_not(tmp_path):
    for charset, declared in (("utf-8-sig", ""), ("utf-16", ""), ("utf-16", "UTF-16"), ("cp1252", "windows-1252")):
        declaration = f'<?xml version="1.0" encoding="{declared}"?>' if declared else '<?xml version="1.0"?>'
        data = tmx("Größe €", declaration=declaration).encode(charset)
        assert texts(tmp_path, data) == texts(tmp_path, gzip.compress(data), "memory.tmx.gz") == ["Größe €"]


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-16-le"])
def test_a_character_that_xml_forbids_is_left_out(tmp_path, charset):
    data = tmx("a&#x0B;b&#0;", "c\x0bd\x00", "&#9;e&#x1F600;&#xD800;&#xFFFE;&#31;f&#x", "g" * 70_000 + "&#x0001;h")
    data = data.replace("&#x<", "&#x1;<")
    if charset == "utf-16-le":
        data = data.replace('<?xml version="1.0"?>', '<?xml version="1.0" encoding="UTF-16LE"?>')
    assert texts(tmp_path, data.encode(charset)) == ["ab", "cd", "e😀f", "g" * 70_000 + "h"]
    for start in range(65_530 - len(tmx("")), 65_540 - len(tmx(""))):  # at the end of a block
        assert texts(tmp_path, tmx(f"{'g' * start}&#x0001;&amp;h"))[0][start:] == "&h"


def test_what_is_damaged_or_dangerous_or_cannot_be_read_is_refused_in_one_line(tmp_path):
    bomb = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    foreign = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    for data, named in (
        (tmx("one", "&b;", doctype=bomb), "an entity of its own in line 1.*: a"),
        (tmx("&a;", doctype=foreign), "an entity of its own in line 1.*: a"),
        (tmx("one&nbsp;two", doctype=""), "line 2, column .*: undefined entity"),
        (tmx("one", "<b>two", "three"), "not well-formed XML: line 3, column .*: mismatched tag"),
        (tmx("one")[:-6], "not well-formed XML: line 3, column .*: no element found"),
        ('<?xml version="1.0"?><xliff><tmx/></xliff>', "no TMX: its first element is `xliff`, not `tmx`"),
        (tmx("one", declaration='<?xml version="1.0" encoding="none"?>'), "charset that cannot be read: .*none"),
        (tmx("one", declaration='<?xml version="1.0" encoding="shift_jis"?>'), "charset that cannot be read"),
    ):
        with pytest.raises(UserError, match=f"memory.tmx .*{named}") as caught:
            read(tmp_path, data)
        assert "\n" not in str(caught.value)
    for path, reason in ((tmp_path / "none.tmx", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(FileError, match=f"cannot read {path}: {reason}"):
            next(read_units(path))
    with pytest.raises(FileError, match="cannot read .*Not a gzipped file"):
        read(tmp_path, tmx("one"), "a.tmx.gz")
    with pytest.raises(FileError, match="cannot read .*ended before"):
        read(tmp_path, gzip.compress(tmx("one").encode())[:-9], "a.tmx.gz")


def test_units_come_before_the_end_of_the_file_is_read_and_what_stands_outside_of_one_is_left_out(tmp_path):
    (tmp_path / "memory.tmx").write_text(tmx(*("many words " * 100 for _ in range(1000)))[:-6])
    assert next(read_units(tmp_path / "memory.tmx"))[0][:3] == ("en", ("many words " * 100).strip(), True)
    for body in ("<seg>lost</seg>", '<tuv xml:lang="en"><seg>lost</seg></tuv>', "<bpt>lost</bpt>"):
        assert texts(tmp_path, f"<tmx>{body}</tmx>") == []


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


def with_memory(translator):
    return MemoryTranslator(translator, Memory(PAIRS))


def test_the_memory_answers_what_it_has_and_the_model_all_else_in_order(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)  # which similar entries alone need
    translator, counted = with_memory(loud := Loud()), []
    texts = ["three", "One two", "", "one two", "  One  two\t"]
    assert translator.translate(texts, counted.append) == ["THREE", "eins zwei", "", "ONE TWO", "  eins zwei\t"]
    assert loud.asked == [(["three", "one two"], {})] and sum(counted) == 5
    assert translator.counts == Counter({"texts": 4, "exact": 2, "similar": 0})
    assert translator.translate_scored(["One two", "x"]) == [Translation("eins zwei", 0), Translation("X", -1.5)]
    assert translator.translate("One two") == "eins zwei" and translator.width == 3
    assert len(loud.asked) == 2  # never for nothing
    # An answer is the first alternative, once.
    found = translator.alternatives(["One two", "x"])
    assert [[text for text, _ in row] for row in found] == [["eins zwei", "ONE TWO", "c"], ["X", "eins zwei", "c"]]
    assert [score for _, score in found[0]] == [0, 0, -2]


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
    assert sum(counted) == len(texts) and min(counted) >= 0 and translator.translate("Three. f.") == "Drei. F."
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


def test_a_text_that_names_its_language_is_for_the_model_and_so_are_other_languages():
    tags = LanguageTags("source", {"en": 1}, {"fr": 5, "de": 6}, ("en", "de"))
    memory = Memory([("One two", "eins zwei"), (">>fra<< One two", "wrong"), ("<2xx> One two", "right")], 50)
    translator = MemoryTranslator(Loud(tags), memory)
    texts = ["One two", ">>fra<< One two", "<2fr> One two", "<2xx> One two"]
    assert translator.translate(texts) == ["eins zwei", ">>FRA<< ONE TWO", "<2FR> ONE TWO", "right"]
    assert translator.translate(texts[0], source_lang=None, target_lang=None) == "eins zwei"
    assert [bool(found) for found in translator.recall(texts)] == [True, False, False, True]
    # Nor is there a memory between other languages.
    loud = Loud(tags)
    loud.between = lambda source_lang, target_lang: Loud(dataclasses.replace(tags, default=("en", target_lang)))
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
    path = write(tmp_path / "memory.tmx", {"en": source, "de": target})
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
