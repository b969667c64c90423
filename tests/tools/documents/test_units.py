import re
from types import SimpleNamespace

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.fragment import parts_of
from keras_transformer.tools.documents.units import FragmentTranslator, Unit, joined, replaced
from tests.tools.documents.fake import SAME, UPPER

TAG = re.compile(r"<[^<>]+>")


def test_fragments_are_translated_with_their_tags_and_numbers_stay():
    fragments = [parts_of(text, TAG) for text in ("one <b>two</b>", "<i> three</i> ", "12 <b>3</b>")]
    done = []
    translated = FragmentTranslator(UPPER, done.append)(fragments)
    assert [joined(parts) for parts in translated] == ["ONE <b>TWO</b>", "<i> THREE</i> ", "12 <b>3</b>"]
    assert sum(done) == 2


def test_a_fragment_whose_translation_is_its_text_is_given_back_as_it_is():
    fragments = [parts_of("o<b>n</b>e \n <b></i>two", TAG), ["three"]]
    translated = FragmentTranslator(SAME)(fragments)
    assert all(after is before for after, before in zip(translated, fragments, strict=True))


def test_a_translator_without_explanations_translates_text_without_inner_tags():
    translate = FragmentTranslator(SimpleNamespace(translate=UPPER.translate))
    assert joined(translate([parts_of("<p>one</p>", TAG)])[0]) == "<p>ONE</p>"
    with pytest.raises(UserError, match="need alignments, which this translator does not give: use a run or a"):
        translate([parts_of("<p>one <b>two</b></p>", TAG)])


def test_only_the_spans_of_changed_units_are_replaced():
    units = [Unit(0, 1, ["a"], joined), Unit(2, 3, ["b"], joined), Unit(4, 4, ["c"], joined, is_apart=True)]
    assert replaced("a b c", units, [units[0].parts, ["B"], units[2].parts]) == "a B cc"
