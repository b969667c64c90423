"""A translator with a translation memory: it has the face of the translator, so all that takes one takes it."""

import functools
from collections import Counter
from itertools import groupby

import regex

from keras_transformer.tools.memory.alignment import explained
from keras_transformer.tools.memory.matches import Memory
from keras_transformer.translation.lines import of_one_or_many
from keras_transformer.translation.options import LANGUAGES
from keras_transformer.translation.results import Translation

_CLOSING = r"""["'\p{Pe}\p{Pf}\p{Pi}]*\Z"""
_ENDS_SENTENCE = regex.compile(rf"\p{{STerm}}{_CLOSING}")
_NEEDS_NO_SPACE = regex.compile(f"[。！？｡]{_CLOSING}")  # as in translation/sentences.py, which imports TensorFlow


class MemoryTranslator:
    """Answers a text that is in a translation memory with its translation there. The model translates all others.

    In a text of several sentences, `translate` and `translate_scored` take each sentence from the memory that it has,
    and the model translates what stands between those. The score is then the lowest of the parts. The translator must
    divide texts, as those of this library do.

    Similar entries are never an answer: `recall` shows them. White space around a text stays. A text that names its
    language, such as ">>fra<< Hello", and a call with languages of its own go to the model. So do methods that are not
    listed here. The score of an answer of the memory is 0.

    Args:
        translator: `TextTranslator`, or another object with its methods `translate` and `translate_scored`.
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
        return self._answered(self._translator.translate, texts, on_progress, options, str, _joined)

    @of_one_or_many
    def translate_scored(self, texts, on_progress=None, **options):
        """As `TextTranslator.translate_scored`."""
        return self._answered(self._translator.translate_scored, texts, on_progress, options, _certain, _joined_scored)

    @of_one_or_many
    def alternatives(self, texts, on_progress=None, **options):
        """As `TextTranslator.alternatives`. The answer of the memory comes before those of the model."""
        found = self._translator.alternatives(texts, on_progress, **options)
        answers = self._answers(texts, options)
        return [
            row if answer is None else [_certain(answer), *(other for other in row if other.text != answer)]
            for row, answer in zip(found, answers, strict=True)
        ]

    @property
    def explain(self):
        """As `TextTranslator.explain`, for a translator that has it. See `alignment` for an answer of the memory."""
        return functools.partial(self._explain, self._translator.explain)

    def _explain(self, explain, texts, on_progress=None, **options):
        if isinstance(texts, str):
            return self._explain(explain, [texts], on_progress, **options)[0]
        found = explain(texts, on_progress, **options)
        answers = self._answers(texts, options)
        return [
            row if answer is None else explained(text, answer, row)
            for text, answer, row in zip(texts, answers, found, strict=True)
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
            [*(match for _, match in parts if match), *([whole] if whole else similar)]
            for whole, parts, similar in self._look_up(texts)
        ]

    def _look_up(self, texts):
        """For each text, (`Match` of the whole text or None, parts as in `_parts`, list of similar `Match`)."""
        if self._last[0] != texts:
            asked = ["" if self._names_language(text) else text for text in texts]
            whole = [self.memory.equal(text) for text in asked]
            others = ["" if match else text for text, match in zip(asked, whole, strict=True)]
            divide = getattr(self._translator, "fragments", None)
            parts = map(self._parts, divide(others)) if divide else [[]] * len(texts)
            self._last = list(texts), [*zip(whole, parts, self.memory.find(others), strict=True)]
        return self._last[1]

    def _parts(self, fragments):
        """Joins the fragments of a text between two entries: list of (str, `Match` or None), [] if none is an entry."""
        parts = []
        for is_entry, group in groupby(fragments, key=lambda fragment: self.memory.equal(fragment) is not None):
            sentences = list(group)
            parts += sentences if is_entry else ["".join(sentences)]
        found = [(part, self.memory.equal(part)) for part in parts]
        return found if any(match for _, match in found) else []

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

    def _answered(self, ask, texts, on_progress, options, form, join):
        """Results of the memory in a form, and of `ask` for all other texts and parts of texts."""
        rows = [[(text, answer)] for text, answer in zip(texts, self._answers(texts, options), strict=True)]
        if not options.keys() & {*LANGUAGES, "prefix"}:
            rows = [
                self._answers_in_part(parts) if parts else row
                for row, (_, parts, _) in zip(rows, self._look_up(texts), strict=True)
            ]
        waiting = [(i, part) for i, row in enumerate(rows) for part, answer in row if answer is None]
        of_each = {
            name: [value[i] for i, _ in waiting] if isinstance(value, (list, tuple)) else value
            for name, value in options.items()
        }
        report = on_progress and _per_text(on_progress, sum(map(len, rows)), len(texts))
        if report and len(waiting) < sum(map(len, rows)):
            report(sum(map(len, rows)) - len(waiting))
        others = iter(ask([part for _, part in waiting], report, **of_each) if waiting else [])
        return [
            join([(part, next(others) if answer is None else form(answer)) for part, answer in row]) for row in rows
        ]

    def _answers(self, texts, options):
        """For each text, the translation of the memory, with the white space around the text; None if it has none."""
        found = [(None, [], [])] * len(texts) if options.keys() & LANGUAGES.keys() else self._look_up(texts)
        self.counts.update(texts=sum(bool(text.strip()) for text in texts))
        self.counts.update(exact=sum(whole is not None for whole, _, _ in found))
        self.counts.update(similar=sum(bool(similar) for whole, _, similar in found if whole is None))
        return [
            None if whole is None else _spaced(text, whole.translation)
            for text, (whole, _, _) in zip(texts, found, strict=True)
        ]

    def _answers_in_part(self, parts):
        """(text, translation of the memory or None) of each part of a text. White space is its own translation."""
        self.counts.update(in_part=1, sentences=sum(match is not None for _, match in parts))
        return [
            (part, _spaced(part, match.translation) if match else None if part.strip() else part)
            for part, match in parts
        ]


def _per_text(on_progress, parts, texts):
    """A function that tells `on_progress` how many texts are done, from the number of parts that are."""
    done = 0

    def report(number):
        nonlocal done
        before, done = done, done + number
        on_progress(done * texts // parts - before * texts // parts)

    return report


def _joined(parts):
    """The translations of the parts of a text, list of (part, translation), as one str.

    Between two sentences that touch in the text, as in Chinese, it writes a space if the translation needs one.
    """
    source, text = "", ""
    for part, translation in parts:
        touches = part and translation and not part[0].isspace() and _ENDS_SENTENCE.search(source)
        text += f" {translation}" if touches and not _NEEDS_NO_SPACE.search(text) else translation
        source += part
    return text


def _joined_scored(parts):
    """As `_joined`, for `Translation`s."""
    text = _joined([(part, translation.text) for part, translation in parts])
    return Translation(text, min(translation.score for _, translation in parts))


def _certain(text):
    return Translation(text, 0.0)


def _spaced(text, translation):
    """A translation with the white space around a text."""
    inner = text.strip()
    start = text.find(inner)
    return f"{text[:start]}{translation}{text[start + len(inner) :]}"
