"""What a run is validated on: the batches of the loss, and the sentences of the BLEU."""

import itertools
from functools import partial

from keras_transformer.data.pipeline import count_batches, dealt, evaluation_batches
from keras_transformer.training.callbacks import BleuOfDirections, MeasureOthers, ValidationBleu


def validation_pairs(config, corpus):
    """The first `validation_sentences` pairs of a corpus' validation split that are not blank, a list."""
    return _first_filled(corpus.validation, config.validation_sentences)


def validation_batches(config, pairs, strategy):
    """Validation pairs for `evaluate`: a distributed dataset, and the number of its batches."""
    # From the cache: Keras drops the iterator after every validation, and an iterator of two replicas that still reads
    # from a generator has been seen to take 40 s to end.
    batches = dealt(evaluation_batches(pairs, config.batch_tokens).cache(), strategy)
    return batches, count_batches(pairs, config.batch_tokens)


def validation_of_others(config, data, strategy):
    """What `MeasureOthers` measures: a list of (name, batches, number of batches, list of pairs)."""
    return [
        (
            corpus.name,
            *validation_batches(config, data.others[corpus.name], strategy),
            validation_pairs(config, corpus),
        )
        for corpus in data.corpus.others
    ]


def validation_bleu(config, data, translate, evaluate, strategy, writer, progress):
    """The callbacks that measure BLEU after every epoch: a list.

    With one direction, the first corpus gives the `val_bleu`, and the others are measured, too. With several, every
    direction has its BLEU, and `val_bleu` is their mean.

    Args:
        config: `Config`.
        data: `Data`.
        translate: function from a list of str to their translations with the trainer's weights. Several directions
            need its arguments `source_lang` and `target_lang`, too.
        evaluate: function (translations, references, `target_lang`) -> `Evaluation`.
        strategy: of the trainer.
        writer, progress: see `ValidationBleu`.
    """
    bleu = lambda *texts, **how: evaluate(*texts, **how).bleu  # noqa: E731
    if not data.corpus.is_multilingual:
        others = validation_of_others(config, data, strategy)
        first = ValidationBleu(translate, bleu, validation_pairs(config, data.corpus), writer, progress)
        return [first, *([MeasureOthers(others, translate, bleu, writer, progress)] if others else [])]
    directions = [
        (
            f"{source}-{target}",
            partial(translate, source_lang=source, target_lang=target),
            partial(bleu, target_lang=target),
            pairs,
        )
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
