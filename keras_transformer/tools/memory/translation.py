"""A translator with a translation memory: it has the face of the translator, so all that takes one takes it."""

import functools
from collections import Counter

from keras_transformer.tools.memory.alignment import explained
from keras_transformer.tools.memory.matches import EXACT, Memory
from keras_transformer.translation.lines import of_one_or_many
from keras_transformer.translation.options import LANGUAGES
from keras_transformer.translation.results import Translation


class MemoryTranslator:
    """Answers a text that is in a translation memory with its translation there. The model translates all others.

    Similar entries are never an answer: `recall` shows them. White space around a text stays. A text that names its
    language, such as ">>fra<< Hello", and a call with languages of its own go to the model. So do methods that are not
    listed here. The score of an answer of the memory is 0.

    Args:
        translator: `TextTranslator`, or another object with its methods `translate` and `translate_scored`.
        memory: `Memory` between the languages of the translator.

    Attributes:
        memory: as the argument.
        counts: Counter: "texts" without blank ones, "exact" for those that the memory has answered, and "similar" for
            those that have only similar entries.

    Example:

    ```python
    translator = MemoryTranslator(kt.load("runs/mine"), Memory([("one two", "zwölf")]))
    translator.translate(["one two", "three"])  # ["zwölf", "drei"]
    ```
    """

    def __init__(self, translator, memory: Memory):
        self._translator, self.memory = translator, memory
        self.counts = Counter()
        self._last = [], []  # texts of the last call, and their matches

    def __getattr__(self, name):
        return getattr(self._translator, name)

    @of_one_or_many
    def translate(self, texts, on_progress=None, **options):
        """As `TextTranslator.translate`."""
        return self._answered(self._translator.translate, texts, on_progress, options, str)

    @of_one_or_many
    def translate_scored(self, texts, on_progress=None, **options):
        """As `TextTranslator.translate_scored`."""
        return self._answered(self._translator.translate_scored, texts, on_progress, options, _certain)

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
        """Finds texts in the memory, see `Memory.find`. Those that name their language have no matches."""
        if self._last[0] != texts:
            self._last = texts, self.memory.find(["" if self._names_language(text) else text for text in texts])
        return self._last[1]

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

    def _answered(self, ask, texts, on_progress, options, form):
        """Results of the memory in a form, and of `ask` for all other texts."""
        answers = self._answers(texts, options)
        waiting = [i for i, answer in enumerate(answers) if answer is None]
        if on_progress and len(waiting) < len(texts):
            on_progress(len(texts) - len(waiting))
        of_each = {
            name: [value[i] for i in waiting] if isinstance(value, (list, tuple)) else value
            for name, value in options.items()
        }
        others = iter(ask([texts[i] for i in waiting], on_progress, **of_each) if waiting else [])
        return [next(others) if answer is None else form(answer) for answer in answers]

    def _answers(self, texts, options):
        """For each text, the translation of the memory, with the white space around the text; None if it has none."""
        found = [[]] * len(texts) if options.keys() & LANGUAGES.keys() else self.recall(texts)
        answers = [
            _spaced(text, matches[0].translation) if matches and matches[0].match == EXACT else None
            for text, matches in zip(texts, found, strict=True)
        ]
        exact = sum(answer is not None for answer in answers)
        self.counts.update(texts=sum(bool(text.strip()) for text in texts), exact=exact)
        self.counts.update(similar=sum(map(bool, found)) - exact)
        return answers


def _certain(text):
    return Translation(text, 0.0)


def _spaced(text, translation):
    """A translation with the white space around a text."""
    inner = text.strip()
    start = text.find(inner)
    return f"{text[:start]}{translation}{text[start + len(inner) :]}"
