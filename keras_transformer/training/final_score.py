"""The scores of a finished model on the test set of every corpus, kept in results.yaml."""

import logging
import statistics
from dataclasses import asdict
from functools import partial

import yaml
from tqdm import tqdm

from keras_transformer.files import write_whole
from keras_transformer.training.checkpoints import load_translator
from keras_transformer.training.strategy import strategy_of_gpus

log = logging.getLogger(__name__)


def score_model(config, run, data, evaluate):
    """Translates the test sets, or else the validation sets, with the finished model, and writes results.yaml.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.
        evaluate: function (translations, references) -> `Evaluation`. Several directions need its
            argument `target_lang`, too.

    Returns:
        ("test" or "validation", `Evaluation`) of the first corpus.
    """
    translator = load_translator(run, strategy=strategy_of_gpus())
    parts = (data.corpus, *data.corpus.others)
    if data.corpus.is_multilingual:
        asked = [(_into(translator, corpus), partial(evaluate, target_lang=corpus.target_lang)) for corpus in parts]
    else:
        asked = [(translator.translate, evaluate)] * len(parts)
    (split, evaluation), *others = (_score(corpus, *how) for corpus, how in zip(parts, asked, strict=True))
    named = [(corpus.name, *scored) for corpus, scored in zip(data.corpus.others, others, strict=True)]
    for name, other_split, scored in named:
        log.info("scored      %s: BLEU %.1f on its %s set", name, scored.bleu, other_split)
    write_results(config, run, data, split, evaluation, named)
    return split, evaluation


def _into(translator, corpus):
    """`Translator.translate` in the direction of a corpus."""
    return partial(translator.translate, source_lang=corpus.source_lang, target_lang=corpus.target_lang)


def _score(corpus, translate, evaluate):
    """("test" or "validation", `Evaluation`) of a corpus."""
    split, pairs = ("test", corpus.test) if corpus.test else ("validation", corpus.validation)
    sources, references = zip(*pairs, strict=True)
    with tqdm(total=len(sources), desc=f"{split} set", disable=None) as progress:
        translations = translate(sources, progress.update)
    return split, evaluate(translations, references)


def write_results(config, run, data, split, evaluation, others=()):
    """Writes the scores of the finished model, and how they were computed, to results.yaml.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.
        split: "test" or "validation".
        evaluation: `Evaluation` of it, with the config's beam size and length penalty.
        others: list of (name, split, `Evaluation`), of the other corpora of a mixture.
    """
    results = {
        "source_lang": data.corpus.source_lang,
        "target_lang": data.corpus.target_lang,
        "set": split,
        "beam_size": config.beam_size,
        "length_penalty": config.length_penalty,
        **asdict(evaluation),
    }
    if others:
        scores = [{"corpus": name, "set": other_split, **asdict(scored)} for name, other_split, scored in others]
        results |= {"corpus": data.corpus.name, "other_corpora": scores}
        if data.corpus.is_multilingual:
            results["mean_bleu"] = statistics.fmean([evaluation.bleu, *(scored.bleu for *_, scored in others)])
            log.info("scored      all corpora: BLEU %.1f on average", results["mean_bleu"])
    text = yaml.safe_dump(results, sort_keys=False)
    write_whole(run.results, lambda path: path.write_text(text, encoding="utf-8"))
