"""Lists of strings in, lists of strings out: one interface over a trained run and over an exported SavedModel."""

import copy
import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import regex
import tensorflow as tf

from keras_transformer.data.full_stops import UNKNOWN, Known
from keras_transformer.errors import UserError, check_positive
from keras_transformer.layers.embedding import projections_of
from keras_transformer.models.sequence_to_sequence import SequenceToSequence
from keras_transformer.presets import LENGTH_PENALTIES
from keras_transformer.protection import NO_PLACEHOLDERS, Protection, read_glossary
from keras_transformer.tags import LanguageTags, check_direction
from keras_transformer.tokenizer import Tokenizer
from keras_transformer.translation import results
from keras_transformer.translation.directions import UNKNOWN_LANGUAGE, WRITTEN_TAG
from keras_transformer.translation.lines import BATCH_SIZE, USUAL, of_one_or_many, run_sorted, whole
from keras_transformer.translation.options import LANGUAGE_INPUTS, check_options, complete_inputs, inputs_of
from keras_transformer.translation.results import Explanation, Score, Translation
from keras_transformer.translation.segments import EXTRA_LENGTH, split_at
from keras_transformer.translation.sentences import DIVISION, NO_SPACE
from keras_transformer.translation.signatures import Signatures

log = logging.getLogger(__name__)

Texts = str | Iterable[str]
Progress = Callable[[int], Any] | None
Languages = str | Sequence[str] | None  # one for all texts, or one for each
Glossary = Mapping[str, str] | str | os.PathLike | None


class TextTranslator:
    """The interface that `Translator` and `SavedModelTranslator` share; a subclass has `_call` and `width`.

    Every method takes a list of texts, or anything that can be made a list: a tuple, a NumPy array, a pandas Series.
    It returns a list; for one str, it returns one result.

    Texts are sorted by length on the way, so that little is padded. `on_progress` is called with the number of texts
    done since its last call. An option is one value for all texts, or a list of a value for each.
    `keras_transformer/translation/options.py` lists the options with their ranges and defaults. `source_lang` and
    `target_lang` are options as well, of every method: the languages of the texts and of the translations, as codes of
    BCP 47 ("fr") or in the model's own form ("fra_Latn"). None means the default. A text that begins with a tag of the
    model, such as ">>fra<<" or "<2fr>", is translated into that language whatever `target_lang` says.

    Args:
        batch_size: most texts translated at a time; fewer of more than `USUAL` characters.
        glossary: dict, source form -> target form, or the path of a file for `read_glossary`. Translations have these
            target forms. None for no terms.
        protect: whether URLs, e-mail addresses, numbers with units, {variables}, format directives such as %s, and
            `code` stay as they are.
        tags: `LanguageTags` of a model of many languages; None for a model of one direction.

    With `glossary` or `protect`, the model must have placeholders: it was trained with the setting `protect`. `explain`
    then shows placeholders in place of the words. `score` reads texts and translations as they are.

    Attributes:
        protection: `Protection`, or None.
        tags: as the argument, with the default of `between`.
        languages: (source, target), the codes of a model of one direction; None for each that is not known.

    Raises:
        UserError: for a size that is not positive, and a glossary that cannot be read.
    """

    _breaks = DIVISION.breaks  # between sentences, by the rule alone: an export does not tell what its corpus knows

    def __init__(
        self, batch_size: int, glossary: Glossary = None, protect: bool = False, tags: LanguageTags | None = None
    ):
        check_positive(batch_size=batch_size)
        self.batch_size, self.tags, self.languages = batch_size, tags, (None, None)
        self.protection = None
        if glossary or protect:
            try:
                terms = read_glossary(glossary) if isinstance(glossary, (str, os.PathLike)) else glossary
                self.protection = Protection(terms, patterns=protect)
            except ValueError as error:
                raise UserError(str(error)) from None

    @of_one_or_many
    def translate(self, texts: Texts, on_progress: Progress = None, **options: Any) -> str | list[str]:
        """Translates any number of texts.

        Args:
            texts: list of str.
            on_progress: see above.
            options: those of the signature `translate_with_options`.

        Returns:
            list of str, in the order of `texts`; str if `texts` is one.

        Raises:
            UserError: for an option that does not exist or is out of range, and for a text that is no str.

        Example:

        ```python
        translator.translate("one two")  # "eins zwei"
        translator.translate(["one", "two"], beam_size=2)  # ["eins", "zwei"]
        ```
        """
        return [translation.text for translation in self.translate_scored(texts, on_progress, **options)]

    @of_one_or_many
    def translate_scored(
        self, texts: Texts, on_progress: Progress = None, **options: Any
    ) -> Translation | list[Translation]:
        """As `translate`, with scores: list of `Translation`."""
        signature = "translate_with_options" if options.keys() - LANGUAGE_INPUTS.keys() else "translate"
        return [results.translation_of(row) for row in self.ask(signature, on_progress, text=texts, **options)]

    @of_one_or_many
    def alternatives(
        self, texts: Texts, on_progress: Progress = None, source_lang: Languages = None, target_lang: Languages = None
    ) -> list[Translation] | list[list[Translation]]:
        """The best translations of every text, as many as the beam is wide: list of list of `Translation`."""
        languages = {"source_lang": source_lang, "target_lang": target_lang}
        return [results.alternatives_of(row) for row in self.ask("alternatives", on_progress, text=texts, **languages)]

    @of_one_or_many
    def sample(self, texts: Texts, on_progress: Progress = None, **options: Any) -> Translation | list[Translation]:
        """Translations drawn at random: list of `Translation`.

        Args:
            texts: list of str.
            on_progress: see above.
            options: those of the signature `sample`.

        Raises:
            UserError: for an option that does not exist or is out of range.
        """
        return [results.translation_of(row) for row in self.ask("sample", on_progress, text=texts, **options)]

    @of_one_or_many
    def score(
        self,
        texts: Texts,
        translations: Texts,
        on_progress: Progress = None,
        source_lang: Languages = None,
        target_lang: Languages = None,
    ) -> Score | list[Score]:
        """How likely given translations are; see `Signatures.score`.

        Args:
            texts: list of str.
            translations: list of str, one for each text.
            on_progress, source_lang, target_lang: see above.

        Returns:
            list of `Score`.

        Raises:
            UserError: if there is not one translation for each text.
        """
        translations = [translations] if isinstance(translations, str) else list(translations)
        inputs = {"translation": translations, "source_lang": source_lang, "target_lang": target_lang}
        return [results.score_of(row) for row in self.ask("score", on_progress, text=texts, **inputs)]

    @of_one_or_many
    def explain(
        self, texts: Texts, on_progress: Progress = None, source_lang: Languages = None, target_lang: Languages = None
    ) -> Explanation | list[Explanation]:
        """The best translations and the source pieces they come from: list of `Explanation`."""
        languages = {"source_lang": source_lang, "target_lang": target_lang}
        return [results.explanation_of(row) for row in self.ask("explain", on_progress, text=texts, **languages)]

    @of_one_or_many
    def fragments(self, texts: Texts) -> list[str] | list[list[str]]:
        """Divides texts as the model reads them, sentence by sentence.

        Args:
            texts: list of str.

        Returns:
            For each text, a list of str: its sentences and what stands between them, in their order. [""] for a blank
            one.
        """
        found = split_at(self._breaks, tf.constant([*map(whole, texts)], tf.string))
        return [[part.decode("utf-8").replace(NO_SPACE, "") for part in row] for row in found.to_list()]

    def translate_batch(self, texts: list[str]) -> tuple[list[str], list[float]]:
        """Translates one batch, a list of str: (list of str, list of float scores)."""
        found = self._ask_batch("translate", {"text": texts, **self.codes(len(texts))})
        rows = [*map(results.translation_of, found)]
        return [row.text for row in rows], [row.score for row in rows]

    def ask(self, signature: str, on_progress: Progress = None, **inputs: Any) -> list[dict[str, Any]]:
        """Puts any number of texts through a signature.

        Args:
            signature: its name, of `INPUTS`.
            on_progress: see above.
            inputs: name -> list of a value for every text, or one value for all. Options may be left out.

        Returns:
            list of dict: output name -> the text's part of it, a NumPy value.

        Raises:
            UserError: if there is no such signature or input, a value is out of range, or there is not a value for
                every text.
        """
        inputs = complete_inputs(signature, inputs)
        beams = inputs.get("beam_size", 0)
        widest = max(beams if isinstance(beams, (list, tuple)) else [beams], default=0)
        if widest and widest > self.width:
            raise UserError(f"`beam_size` is at most {self.width}, as loaded or exported. Received: beam_size={widest}")
        number = len(inputs["text"])
        inputs |= self.codes(number, *(inputs.pop(name) for name in LANGUAGE_INPUTS))
        columns = [map(whole, x if isinstance(x, (list, tuple)) else [x] * number) for x in inputs.values()]
        rows = list(zip(*columns, strict=True))

        def ask_batch(rows):
            return self._ask_batch(signature, dict(zip(inputs, zip(*rows, strict=True), strict=True)))

        def size(row):
            return sum(len(value) for value in row if isinstance(value, str))

        return run_sorted(ask_batch, rows, self.batch_size, on_progress, size, self.batch_size * USUAL)

    def between(self, source_lang: str | None = None, target_lang: str | None = None) -> "TextTranslator":
        """The same translator with other languages for a text whose languages are not given.

        Args:
            source_lang, target_lang: str, see above; None leaves the one that this translator has.

        Raises:
            UserError: for a language that the model does not have. The error lists those that it has.

        Example:

        ```python
        translator.between(target_lang="fr").translate("Good morning")
        ```
        """
        if self.tags is None:
            check_direction(self.languages, source_lang, target_lang)
            return self
        other = copy.copy(self)
        other.tags = dataclasses.replace(self.tags, default=self.tags.find(source_lang, target_lang))
        return other

    def codes(self, number: int, source_lang: Languages = None, target_lang: Languages = None) -> dict[str, list[str]]:
        """The languages of a `number` of texts as inputs of a signature; {} for a model of one direction.

        Raises:
            UserError: for a language that the model does not have.
        """
        given = ([x] * number if isinstance(x, str | None) else x for x in (source_lang, target_lang))
        pairs = list(zip(*given, strict=True))
        if self.tags is None:
            for pair in set(pairs):
                check_direction(self.languages, *pair)
            return {}
        codes = {pair: self.tags.find(*pair) for pair in set(pairs)}
        return {name: [codes[pair][side] for pair in pairs] for side, name in enumerate(LANGUAGE_INPUTS)}

    def _hidden(self, text):
        """The `Hidden` of a text. A tag that the text begins with is no word of it."""
        tag = regex.match(WRITTEN_TAG, text) if self.tags else None
        first = tag.end() if tag else 0
        hidden = self.protection.hide(text[first:])
        return hidden._replace(text=text[:first] + hidden.text)

    def _ask_batch(self, signature, inputs):
        hidden = []
        if self.protection and signature != "score":
            hidden = [self._hidden(tf.compat.as_text(text)) for text in inputs["text"]]
            inputs = {**inputs, "text": [each.text for each in hidden]}
        tensors = {
            name: tf.constant(list(inputs[name]), dtype, shape=[len(inputs[name])])
            for name, dtype in inputs_of(signature, self.tags).items()
        }
        outputs = {name: output.numpy() for name, output in self._call(signature, tensors).items()}
        if any((outputs[name] == UNKNOWN_LANGUAGE).any() for name in {"score", "scores"} & outputs.keys()):
            log.warning("language    a text begins with the tag of a language that the model does not have")
        rows = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
        return [_restored(*each) for each in zip(hidden, rows, strict=True)] if hidden else rows


class Translator(TextTranslator):
    """Translates lists of strings with a trained model.

    Args:
        model: `SequenceToSequence`.
        source_tokenizer: `Tokenizer` of the texts.
        target_tokenizer: `Tokenizer` of the translations; that of the texts by default.
        beam_size, length_penalty: W and alpha; a W of 1 is greedy search.
        max_length: most source tokens that are translated as one sequence; longer text is divided.
        extra_length: most tokens that a translation has more than its source.
        batch_size: most texts translated at a time, on every device.
        strategy: tf.distribute.Strategy under which the weights were made. Each of its replicas on this machine
            translates its part of every batch. None leaves all to the first.
        split_sentences, known, shortlist, projections, programs: see `Signatures`.
        glossary, protect, tags: see `TextTranslator`.

    Attributes:
        files: list of the paths that the weights were read from; empty for a model that is given.

    Raises:
        UserError: for a size that is not positive, a length penalty out of its range, and a model that has no
            placeholders for `glossary` or `protect`.
    """

    def __init__(
        self,
        model: SequenceToSequence,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        beam_size: int = 4,
        length_penalty: float = 0.6,
        max_length: int = 256,
        batch_size: int = BATCH_SIZE,
        strategy: tf.distribute.Strategy | None = None,
        split_sentences: bool = True,
        known: Known = UNKNOWN,
        shortlist: Any = None,
        glossary: Glossary = None,
        protect: bool = False,
        tags: LanguageTags | None = None,
        projections: Callable = projections_of,
        extra_length: int = EXTRA_LENGTH,
        programs: Any = None,
    ):
        check_options("translate_with_options", {"beam_size": beam_size, "length_penalty": length_penalty})
        check_positive(beam_size=beam_size, max_length=max_length)
        if not LENGTH_PENALTIES[0] <= length_penalty <= LENGTH_PENALTIES[1]:
            raise UserError(f"`length_penalty` must be between -10 and 10. Received: length_penalty={length_penalty}")
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer or source_tokenizer
        self.settings = {"beam_size": beam_size, "length_penalty": length_penalty, "max_length": max_length}
        self.settings["split_sentences"] = split_sentences
        self.known, self.shortlist = known, shortlist
        self._how = {"known": known, "shortlist": shortlist, "extra_length": extra_length, "programs": programs}
        tokenizers, how = (self.source_tokenizer, self.target_tokenizer), {**self.settings, **self._how, "tags": tags}
        self.signatures = Signatures(model, *tokenizers, **how, projections=projections)
        self._functions, self._breaks = self.signatures.functions(), self.signatures.division.breaks
        self._strategy = strategy or tf.distribute.get_strategy()
        self.files = []
        self._replicas = len(self._strategy.experimental_local_results(model.weights[0].value))
        specs = {name: tf.TensorSpec([None], dtype) for name, dtype in inputs_of("translate", tags).items()}
        # `partial`: see `Signatures.functions`
        self._functions["translate"] = tf.function(partial(self._share), input_signature=[specs], autograph=False)
        super().__init__(batch_size * self._replicas, glossary, protect, tags)
        if self.protection and not all(tokenizer.has_placeholders for tokenizer in tokenizers):
            raise UserError(NO_PLACEHOLDERS)

    def with_model(self, model: SequenceToSequence, **settings: Any) -> "Translator":
        """A translator with the same tokenizers and another model; `settings` replace those of this one."""
        same = {**self.settings, **self._how, "tags": self.tags, "batch_size": self.batch_size // self._replicas}
        other = Translator(model, self.source_tokenizer, self.target_tokenizer, **same | settings)
        other.protection, other.languages = other.protection or self.protection, self.languages
        return other

    @property
    def width(self) -> int:
        """W, the most hypotheses of its search, and the number of alternatives."""
        return self.settings["beam_size"]

    def _call(self, signature, inputs):
        return self._functions[signature](inputs)

    def _share(self, inputs):
        """`translate` over n replicas: replica i translates the rows i, i + n, ... with its own weights."""

        def translate_part():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group % self._replicas
            own = {name: values[replica :: self._replicas] for name, values in inputs.items()}
            return self.signatures.answer("translate", own)

        rows = [tf.range(tf.size(inputs["text"]))[replica :: self._replicas] for replica in range(self._replicas)]
        parts = self._strategy.run(translate_part)
        return {
            name: tf.dynamic_stitch(rows, self._strategy.experimental_local_results(part))
            for name, part in parts.items()
        }


def _restored(hidden, row):
    """The row of a signature, with the hidden words in its translations."""
    row = dict(row)
    if "translation" in row:
        row["translation"] = hidden.restore(row["translation"].decode("utf-8")).encode("utf-8")
    if "translations" in row:
        row["translations"] = [hidden.restore(text.decode("utf-8")).encode("utf-8") for text in row["translations"]]
    return row
