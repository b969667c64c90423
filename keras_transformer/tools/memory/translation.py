"""A translator with a translation memory: it has the face of the translator, so all that takes one takes it."""

import functools
from collections import Counter
from itertools import groupby

import regex

from keras_transformer.tools.memory.alignment import explained
from keras_transformer.tools.memory.matches import EXACT, Memory
from keras_transformer.translation.lines import of_one_or_many
from keras_transformer.translation.options import LANGUAGE_INPUTS
from keras_transformer.translation.results import Translation

_CLOSING = r"""["'\p{Pe}\p{Pf}\p{Pi}]*\Z"""
_ENDS_SENTENCE = regex.compile(rf"\p{{STerm}}{_CLOSING}")
_NEEDS_NO_SPACE = regex.compile(f"[。！？｡]{_CLOSING}")  # as in translation/sentences.py, which imports TensorFlow


class MemoryTranslator:
    """Answers a text that is in a translation memory with its translation there. The model translates all others.

    A text may have sentences that are in the memory. `translate` and `translate_scored` take the translations of these
    sentences from there, and the model translates what stands between them. The score is the lowest of the parts. This
    needs a translator that divides texts (`fragments`), as those of this library do.

    Similar entries are never an answer: `recall` shows them. White space around a text stays. A text that names its
    language, such as ">>fra<< Hello", and a call with languages of its own go to the model. So do methods that are not
    listed here. The score of an answer of the memory is 0.

    Args:
        translator: `TextTranslator`, or another object with its method `translate_scored`.
        memory: `Memory` between the languages of the translator.

    Attributes:
        memory: as the argument.
        counts: Counter: "texts" without blank ones, "exact" for those that the memory has answered, "in_part" for those
            that took "sentences" from it, and "similar" for those that are no entry and have similar ones.

    Example:

    ```python
    translator = MemoryTranslator(kt.load("runs/mine"), Memory([("one two", "zwölf")]))
    translator.translate(["one two", "three"])  # ["zwölf", "drei"]
    ```
    """

    def __init__(self, translator, memory: Memory):
        self._translator, self.memory = translator, memory
        self.counts = Counter()
        self._last = [], []  # texts of the last call, and what `_look_up` found

    def __getattr__(self, name):
        return getattr(self._translator, name)

    @of_one_or_many
    def translate(self, texts, on_progress=None, **options):
        """As `TextTranslator.translate`."""
        return [found.text for found in self.translate_scored(texts, on_progress, **options)]

    @of_one_or_many
    def translate_scored(self, texts, on_progress=None, **options):
        """As `TextTranslator.translate_scored`."""
        rows = [
            [(part, _known(part, match)) for part, match in parts]
            for parts in self._parts_of(texts, options, are_divided="prefix" not in options)
        ]
        waiting = [(row, part) for row, parts in enumerate(rows) for part, answer in parts if answer is None]
        chosen = {
            name: [value[row] for row, _ in waiting] if isinstance(value, (list, tuple)) else value
            for name, value in options.items()
        }
        number = sum(map(len, rows))
        report = on_progress and _per_text(on_progress, number, len(texts))
        if report and len(waiting) < number:
            report(number - len(waiting))
        asked = [part for _, part in waiting]
        others = iter(self._translator.translate_scored(asked, report, **chosen) if waiting else [])
        return [_joined([(part, answer or next(others)) for part, answer in parts]) for parts in rows]

    @of_one_or_many
    def alternatives(self, texts, on_progress=None, **options):
        """As `TextTranslator.alternatives`. The answer of the memory comes before those of the model."""
        found = self._translator.alternatives(texts, on_progress, **options)
        return [
            [answer, *(other for other in row if other.text != answer.text)] if answer else row
            for row, answer in zip(found, self._answers(texts, options), strict=True)
        ]

    @property
    def explain(self):
        """As `TextTranslator.explain`, for a translator that has it. See `alignment` for an answer of the memory."""
        return functools.partial(self._explain, self._translator.explain)

    def _explain(self, explain, texts, on_progress=None, **options):
        if isinstance(texts, str):
            return self._explain(explain, [texts], on_progress, **options)[0]
        found = explain(texts, on_progress, **options)
        return [
            explained(text, answer.text, row, self.memory.spans_of(text)) if answer else row
            for text, answer, row in zip(texts, self._answers(texts, options), found, strict=True)
        ]

    @property
    def between(self):
        """As `TextTranslator.between`, for a translator that has it. Between other languages, there is no memory."""
        return functools.partial(self._between, self._translator.between)

    def _between(self, between, source_lang=None, target_lang=None):
        other, tags = between(source_lang, target_lang), getattr(self, "tags", None)
        if tags and other.tags.default != tags.default:
            return other
        same = MemoryTranslator(other, self.memory)
        same.counts = self.counts
        return same

    def recall(self, texts):
        """Finds texts in the memory.

        Args:
            texts: list of str.

        Returns:
            For each text, a list of `Match`: the equal entry alone, or else those that are equal to sentences of the
            text, and the most similar ones. [] for a text that names its language.
        """
        return [
            [*(match for _, match in parts if match), *matches] if len(parts) > 1 else matches
            for parts, matches in self._look_up(texts)
        ]

    def _look_up(self, texts):
        """The parts of each text, a list of (str, `Match` or None), and its matches, see `Memory.find`."""
        if self._last[0] != texts:
            asked = ["" if self._names_language(text) else text for text in texts]
            divide = getattr(self._translator, "fragments", lambda texts: [[text] for text in texts])
            rows = zip(texts, divide(asked), self.memory.find(asked), strict=True)
            self._last = list(texts), [(self._parts(*row), row[2]) for row in rows]
        return self._last[1]

    def _parts(self, text, fragments, matches):
        """A text that is no entry is divided where its fragments are entries. All between two entries is one part."""
        if matches and matches[0].match == EXACT:
            return [(text, matches[0])]
        parts = []
        for is_entry, group in groupby(fragments, key=lambda fragment: self.memory.equal(fragment) is not None):
            neighbours = list(group)
            parts += neighbours if is_entry else ["".join(neighbours)]
        found = [(part, self.memory.equal(part)) for part in parts]
        return found if any(match for _, match in found) else [(text, None)]

    def remembered(self, text, fits):
        """The translation of the memory for a text, if it has one and `fits(translation)`. Else None, and no count."""
        match = None if self._names_language(text) else self.memory.equal(text)
        if match is None or not fits(match.translation):
            return None
        self.counts.update(texts=1, exact=1)
        return _spaced(text, match.translation)

    def _names_language(self, text):
        if not (tags := getattr(self, "tags", None)):
            return False
        from keras_transformer.translation.directions import written_tag  # imports TensorFlow, as such a model does

        return written_tag(text, tags)[1] is not None

    def _answers(self, texts, options):
        """For each text, the `Translation` of the entry that is equal to it, or None."""
        rows = self._parts_of(texts, options, are_divided=False)
        return [_known(*parts[0]) if parts[0][1] else None for parts in rows]

    def _parts_of(self, texts, options, are_divided):
        """Looks texts up and counts them: for each, a list of (str, `Match` or None)."""
        if any(options.get(name) is not None for name in LANGUAGE_INPUTS):
            found = [([(text, None)], []) for text in texts]
        else:
            found = self._look_up(texts)
        rows = []
        for text, (parts, matches) in zip(texts, found, strict=True):
            parts = parts if are_divided or len(parts) == 1 else [(text, None)]
            known, is_whole = sum(match is not None for _, match in parts), len(parts) == 1
            self.counts.update({"exact": known} if is_whole else {"in_part": 1, "sentences": known})
            self.counts.update(texts=bool(text.strip()), similar=bool(matches) and not (is_whole and known))
            rows.append(parts)
        return rows


def _per_text(on_progress, parts, texts):
    """A function that tells `on_progress` how many texts are done, from the number of parts that are."""
    done = 0

    def report(number):
        nonlocal done
        before, done = done, done + number
        on_progress(done * texts // parts - before * texts // parts)

    return report


def _joined(parts):
    """The `Translation`s of the parts of a text, list of (str, `Translation`), as one.

    Between two sentences that touch in the text, as in Chinese, it writes a space if the translation needs one.
    """
    source, text = "", ""
    for part, (translation, _) in parts:
        touches = part and translation and not part[0].isspace() and _ENDS_SENTENCE.search(source)
        text += f" {translation}" if touches and not _NEEDS_NO_SPACE.search(text) else translation
        source += part
    return Translation(text, min(found.score for _, found in parts))


def _known(text, match):
    """The `Translation` of a text that has a `Match`, and of blank text; None for another text."""
    if match:
        return Translation(_spaced(text, match.translation), 0.0)
    return None if text.strip() else Translation(text, 0.0)


def _spaced(text, translation):
    """A translation with the white space around a text."""
    inner = text.strip()
    start = text.find(inner)
    return f"{text[:start]}{translation}{text[start + len(inner) :]}"
