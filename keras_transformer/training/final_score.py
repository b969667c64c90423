"""The scores of a finished model on the test set of every corpus, kept in results.yaml."""

import logging
from dataclasses import asdict

import tensorflow as tf
import yaml
from tqdm import tqdm

from keras_transformer.files import write_whole
from keras_transformer.training.checkpoints import load_translator
from keras_transformer.training.decide import mirrored

log = logging.getLogger(__name__)


def score_model(config, run, data, judge):
    """Translates the test sets, or else the validation sets, with the finished model, and writes results.yaml.

    Without `config.score_test`, it translates the validation sets.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.
        judge: `Judge`.

    Returns:
        ("test" or "validation", `Evaluation`) of the first corpus.
    """
    first, translator = data.corpus, load_translator(run, strategy=strategy_of_gpus())
    parts = (first, *first.others)
    scored = (_score(corpus, config.score_test, translator, judge, first.is_multilingual) for corpus in parts)
    (split, evaluation), *others = scored
    results = {
        "source_lang": first.source_lang,
        "target_lang": first.target_lang,
        "set": split,
        "beam_size": config.beam_size,
        "length_penalty": config.length_penalty,
        **asdict(evaluation),
    }
    if others:
        results |= {"corpus": first.name, "other_corpora": []}
    for corpus, (other_split, other) in zip(first.others, others, strict=True):
        log.info("scored      %s: BLEU %.1f on its %s set", corpus.name, other.bleu, other_split)
        results["other_corpora"].append({"corpus": corpus.name, "set": other_split, **asdict(other)})
    text = yaml.safe_dump(results, sort_keys=False)
    write_whole(run.results, lambda path: path.write_text(text, encoding="utf-8"))
    return split, evaluation


def _score(corpus, score_test, translator, judge, has_directions):
    """("test" or "validation", `Evaluation`) of a corpus."""
    split, pairs = ("test", corpus.test) if corpus.test and score_test else ("validation", corpus.validation)
    sources, references = zip(*pairs, strict=True)
    direction = {"source_lang": corpus.source_lang, "target_lang": corpus.target_lang} if has_directions else {}
    with tqdm(total=len(sources), desc=f"{split} set", disable=None) as progress:
        translations = translator.translate(sources, progress.update, **direction)
    return split, judge(translations, references, corpus.target_lang)


def strategy_of_gpus():
    """MirroredStrategy over the GPUs of this machine; None for fewer than two."""
    gpus = tf.config.list_logical_devices("GPU")
    return mirrored(*(gpu.name for gpu in gpus)) if len(gpus) > 1 else None
