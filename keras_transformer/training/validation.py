"""What a run is measured on after an epoch: the batches of the loss, the sentences of the BLEU, and the pictures."""

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.data.pipeline import validation_batches
from keras_transformer.errors import ToolError
from keras_transformer.process import find_tool
from keras_transformer.training.decide import extra_length_of
from keras_transformer.training.preparation import first_filled, validation_pairs
from keras_transformer.translation.translator import Translator

log = logging.getLogger(__name__)
SAMPLES, SAID = 5, 2  # translations shown in TensorBoard, and in the log


def measures_of(config, run, data, trainer, group, judge, board, progress):
    """What measures a run after an epoch.

    Args:
        config, run, data: `Config`, `RunDirectory`, `Data`.
        trainer: compiled `TeacherForcing`, whose weights translate.
        group: `Alone` or `Workers`, which divides the sentences.
        judge: `Judge`.
        board: `Board`.
        progress: `Progress`.

    Returns:
        list of functions of (trainer, logs).
    """
    strategy = trainer.distribute_strategy
    with strategy.scope():
        greedy = Translator(
            trainer.network,
            *data.tokenizers,
            beam_size=1,
            max_length=config.max_length,
            extra_length=extra_length_of(data.train),
            batch_size=64,
            strategy=decoding_strategy(strategy),
            split_sentences=config.split_sentences,
            known=data.known,
            tags=data.languages,
        )
    translate = group.share(greedy.translate)
    measures = [validation_bleu(config, data, translate, judge, board.validation, progress)]
    with contextlib.suppress(ToolError):  # without the tool, TensorBoard has no pictures
        tool = find_tool("analysis.pictures", "pictures of attention")
        measures.append(tool.pictures_of(data, board.validation, progress))
    return measures


def decoding_strategy(strategy):
    """The strategy by which replicas share validation decoding; None where the first replica decodes everything.

    The graph of every replica takes seconds to make. CPU cores are busy without it, because several batches are under
    way at a time, whichever device they are on.
    """
    return strategy if tf.config.list_logical_devices("GPU") else None


def validation_bleu(config, data, translate, judge, writer, progress):
    """The `ValidationBleu` of a run.

    With one direction, the first corpus gives the `val_bleu`, and the others are measured, too. With several, every
    direction has its BLEU, and `val_bleu` is their mean.

    Args:
        config: `Config`.
        data: `Data`.
        translate: function from a list of str to their translations with the trainer's weights. Several directions
            need its arguments `source_lang` and `target_lang`, too.
        judge: `Judge`.
        writer, progress: see `ValidationBleu`.
    """

    def bleu_into(target_lang):
        return lambda translations, references: judge(translations, references, target_lang).bleu

    if data.corpus.is_multilingual:
        parts = [
            Part(
                f"{source}-{target}",
                partial(translate, source_lang=source, target_lang=target),
                bleu_into(target),
                pairs,
            )
            for (source, target), pairs in pairs_by_direction(config, data.corpus).items()
        ]
        return ValidationBleu(parts, writer, progress)
    bleu = bleu_into(data.corpus.target_lang)
    parts = [Part("", translate, bleu, validation_pairs(config, data.corpus), samples=SAMPLES, said=SAID)]
    for other in data.corpus.others:
        batches = validation_batches(data.others[other.name], config.batch_tokens)
        pairs = validation_pairs(config, other)
        parts.append(Part(other.name, translate, bleu, pairs, batches, samples=0, said=0))
    return ValidationBleu(parts, writer, progress)


def pairs_by_direction(config, corpus):
    """Validation pairs of each direction: dict, (source, target) -> list, to which its corpora add equally many."""
    corpora = {}
    for each in (corpus, *corpus.others):
        corpora.setdefault((each.source_lang, each.target_lang), []).append(each)
    found = {}
    for direction, its_own in corpora.items():
        count = -(-config.validation_sentences // len(its_own))
        found[direction] = [pair for each in its_own for pair in first_filled(each.validation, count)]
    return found


class Part(NamedTuple):
    """A part of the validation sentences: those of a direction or of a corpus.

    Attributes:
        name: str, for its curves and logs; "" if it is the whole of `val_bleu`.
        translate: function from a list of str to a list of str, with the weights being trained.
        score: function (translations, references) -> BLEU.
        pairs: list of (source, reference).
        batches: (dataset, number of batches) that give loss, accuracy and perplexity, too: its BLEU has no share in
            `val_bleu`. None if Keras measures them.
        samples, said: how many translations TensorBoard and the log show.
    """

    name: str
    translate: Callable
    score: Callable
    pairs: list
    batches: tuple | None = None
    samples: int = 1
    said: int = 1


class ValidationBleu:
    """Translates validation sentences after every epoch and adds their BLEU to the logs.

    `val_bleu` is the mean of the parts without `batches`. Every part with a name has logs `val_bleu/NAME` and curves
    `bleu/NAME`, and with `batches` those of its loss, accuracy and perplexity.

    Args:
        parts: list of `Part`.
        writer: `EventWriter` for the samples and the curves.
        progress: `Progress`.
    """

    def __init__(self, parts, writer, progress):
        self.parts = parts
        self.writer = writer
        self.progress = progress

    def __call__(self, trainer, logs):
        bleus, rows, curves = [], [], {}
        for part in self.parts:
            measures = part_measures(part, trainer)
            sources, references = map(list, zip(*part.pairs, strict=True))
            with trainer.averaged():
                translations = part.translate(sources)
            measures["bleu"] = part.score(translations, references)
            if part.batches is None:
                bleus.append(measures["bleu"])
            if part.name:
                curves.update({f"{measure}/{part.name}": value for measure, value in measures.items()})
            samples = list(zip(sources, references, translations, strict=True))
            rows += samples[: part.samples]
            for source, _, translation in samples[: part.said]:
                log.info("%12s%s%s -> %s", "", f"{part.name}: " if part.name else "", source, translation)
        logs.update({f"val_{name}": value for name, value in curves.items()})
        logs["val_bleu"] = sum(bleus) / len(bleus)
        with self.writer.as_default(step=self.progress.step):
            tf.summary.text("samples", table_of(rows))
            for name, value in curves.items():
                tf.summary.scalar(name, value)


def part_measures(part, trainer):
    """Loss, accuracy and perplexity of the batches of a `Part`, a dict; empty if it has none."""
    if part.batches is None:
        return {}
    batches, steps = part.batches
    measures = trainer.evaluate(batches, steps=steps, return_dict=True, verbose=0)
    del measures["padding"]
    return measures


def table_of(samples):
    """A table in Markdown of (source, reference, translation)."""
    rows = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in samples]
    return "\n".join(["| source | reference | translation |", "|---|---|---|", *rows])
