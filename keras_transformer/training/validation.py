"""What a run is measured on after an epoch: the batches of the loss, the sentences of the BLEU, and the pictures."""

import itertools
import logging
from functools import partial

import numpy as np
import tensorflow as tf

from keras_transformer.data.pipeline import make_batch, validation_batches
from keras_transformer.files import write_whole
from keras_transformer.training.tensorboard import AlignmentPictures
from keras_transformer.translation.translator import Translator

log = logging.getLogger(__name__)
SAMPLES, SAID = 5, 2  # translations shown in TensorBoard, and in the log
SAMPLE_SENTENCES, PICTURES = 32, 4  # for the proof of an export; alignments of validation pairs


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
            batch_size=64,
            strategy=decoding_strategy(strategy),
            split_sentences=config.split_sentences,
            known=data.known,
            tags=data.languages,
        )
    translate = group.share(greedy.translate)
    pictured = np.arange(min(PICTURES, len(data.validation)))
    pairs = (*make_batch(data.validation, pictured), data.tokenizers)
    pictures = AlignmentPictures(*pairs, board.validation, progress, data.validation.first_ids(pictured))
    bleus = validation_bleu(config, data, translate, judge, strategy, board.validation, progress)
    return [*bleus, pictures]


def decoding_strategy(strategy):
    """The strategy by which replicas share validation decoding; None where the first replica decodes everything.

    The graph of every replica takes seconds to make. CPU cores are busy without it, because several batches are under
    way at a time, whichever device they are on.
    """
    return strategy if tf.config.list_logical_devices("GPU") else None


def write_samples(config, run, data):
    """Writes samples.txt, with which an export of the run is proven."""
    samples = [source for source, _ in validation_pairs(config, data.corpus)[:SAMPLE_SENTENCES]]
    write_whole(run.samples, lambda path: path.write_text("\n".join(samples), encoding="utf-8"))


def validation_pairs(config, corpus):
    """The first `validation_sentences` pairs of a corpus' validation split that are not blank, a list."""
    return _first_filled(corpus.validation, config.validation_sentences)


def validation_of_others(config, data, strategy):
    """What `MeasureOthers` measures: a list of (name, batches, number of batches, list of pairs)."""
    return [
        (
            corpus.name,
            *validation_batches(data.others[corpus.name], config.batch_tokens, strategy),
            validation_pairs(config, corpus),
        )
        for corpus in data.corpus.others
    ]


def validation_bleu(config, data, translate, judge, strategy, writer, progress):
    """What measures BLEU after an epoch, a list of functions of (trainer, logs).

    With one direction, the first corpus gives the `val_bleu`, and the others are measured, too. With several, every
    direction has its BLEU, and `val_bleu` is their mean.

    Args:
        config: `Config`.
        data: `Data`.
        translate: function from a list of str to their translations with the trainer's weights. Several directions
            need its arguments `source_lang` and `target_lang`, too.
        judge: `Judge`.
        strategy: of the trainer.
        writer, progress: see `ValidationBleu`.
    """

    def bleu_into(target_lang):
        return lambda translations, references: judge(translations, references, target_lang).bleu

    if not data.corpus.is_multilingual:
        others, bleu = validation_of_others(config, data, strategy), bleu_into(data.corpus.target_lang)
        first = ValidationBleu(translate, bleu, validation_pairs(config, data.corpus), writer, progress)
        return [first, *([MeasureOthers(others, translate, bleu, writer, progress)] if others else [])]
    directions = [
        (f"{source}-{target}", partial(translate, source_lang=source, target_lang=target), bleu_into(target), pairs)
        for (source, target), pairs in pairs_by_direction(config, data.corpus).items()
    ]
    return [BleuOfDirections(directions, writer, progress)]


def pairs_by_direction(config, corpus):
    """Validation pairs of each direction: dict, (source, target) -> list, to which its corpora add equally many."""
    corpora = {}
    for each in (corpus, *corpus.others):
        corpora.setdefault((each.source_lang, each.target_lang), []).append(each)
    found = {}
    for direction, its_own in corpora.items():
        count = -(-config.validation_sentences // len(its_own))
        found[direction] = [pair for each in its_own for pair in _first_filled(each.validation, count)]
    return found


def _first_filled(pairs, count):
    """The first pairs that are not blank, a list."""
    return list(itertools.islice((pair for pair in pairs if pair[0].strip() and pair[1].strip()), count))


class ValidationBleu:
    """Translates validation sentences after every epoch and adds their BLEU to the logs, as `val_bleu`.

    Args:
        translate: function from a list of str to a list of str, with the weights being trained.
        score: function (translations, references) -> BLEU.
        pairs: list of (source, reference).
        writer: `EventWriter` for the samples.
        progress: `Progress`.
    """

    def __init__(self, translate, score, pairs, writer, progress):
        self.translate = translate
        self.score = score
        self.sources, self.references = map(list, zip(*pairs, strict=True))
        self.writer = writer
        self.progress = progress

    def __call__(self, trainer, logs):
        with trainer.averaged():
            translations = self.translate(self.sources)
        logs["val_bleu"] = self.score(translations, self.references)
        for source, translation in zip(self.sources[:SAID], translations, strict=False):
            log.info("%12s%s -> %s", "", source, translation)
        with self.writer.as_default(step=self.progress.step):
            rows = zip(self.sources[:SAMPLES], self.references, translations, strict=False)
            tf.summary.text("samples", table_of(rows))


class BleuOfDirections:
    """Translates validation sentences of every direction after every epoch, each with its target language.

    It adds the logs `val_bleu/NAME` and their mean, `val_bleu`. It writes a curve `bleu/NAME` for each direction.

    Args:
        directions: list of (name, translate, score, pairs), the last three as in `ValidationBleu`.
        writer, progress: see `ValidationBleu`.
    """

    def __init__(self, directions, writer, progress):
        self.directions = directions
        self.writer = writer
        self.progress = progress

    def __call__(self, trainer, logs):
        measures, rows = {}, []
        with trainer.averaged():
            for name, translate, score, pairs in self.directions:
                sources, references = map(list, zip(*pairs, strict=True))
                translations = translate(sources)
                measures[name] = score(translations, references)
                rows.append((sources[0], references[0], translations[0]))
                log.info("%12s%s: %s -> %s", "", name, sources[0], translations[0])
        logs.update({f"val_bleu/{name}": value for name, value in measures.items()})
        logs["val_bleu"] = sum(measures.values()) / len(measures)
        with self.writer.as_default(step=self.progress.step):
            tf.summary.text("samples", table_of(rows))
            for name, value in measures.items():
                tf.summary.scalar(f"bleu/{name}", value)


def table_of(samples):
    """A table in Markdown of (source, reference, translation)."""
    rows = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in samples]
    return "\n".join(["| source | reference | translation |", "|---|---|---|", *rows])


class MeasureOthers:
    """Measures the other corpora of a mixture after every epoch, as the first one is: loss, accuracy, perplexity, BLEU.

    It adds the logs `val_loss/NAME`, ..., and writes curves of these names.

    Args:
        others: list of (name, dataset of validation batches, number of batches, list of (source, reference)).
        translate, score, writer, progress: see `ValidationBleu`.
    """

    def __init__(self, others, translate, score, writer, progress):
        self.others = others
        self.translate = translate
        self.score = score
        self.writer = writer
        self.progress = progress

    def __call__(self, trainer, logs):
        for name, batches, steps, pairs in self.others:
            measures = trainer.evaluate(batches, steps=steps, return_dict=True, verbose=0)
            sources, references = map(list, zip(*pairs, strict=True))
            with trainer.averaged():
                measures["bleu"] = self.score(self.translate(sources), references)
            del measures["padding"]
            logs.update({f"val_{measure}/{name}": value for measure, value in measures.items()})
            with self.writer.as_default(step=self.progress.step):
                for measure, value in measures.items():
                    tf.summary.scalar(f"{measure}/{name}", value)
