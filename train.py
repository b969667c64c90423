"""Trains a Transformer on sentence pairs: data and preset in, run directory out."""

import sys
from functools import partial

from keras_transformer.command_line import parse_training
from keras_transformer.console import exit_on_sigterm, import_tensorflow, mistakes_as_lines

DESCRIPTION = """Train a Transformer to translate. The same command goes on where an earlier run stopped.

  python train.py
      learns dates, numbers, prices and names from Unicode locale data; no download, 4 minutes on 2 cores
  python train.py --dataset files:DIR --source_lang en --target_lang de --preset tiny --model_dir runs/mine
      learns from DIR/train.en and DIR/train.de, line by line, with DIR/val.* to validate and DIR/test.* to test
  python train.py --dataset tfds:ted_hrlr_translate/pt_to_en --preset small --model_dir runs/ted
      learns from a corpus of TensorFlow Datasets, downloaded once
  python train.py ... --dry_run
      prints settings, figures of the corpus, and about how long and in how much memory it would train"""


def main(config, dry_run):
    import keras
    from tqdm import tqdm

    from keras_transformer.evaluation import describe, evaluate
    from keras_transformer.training.dry_run import rehearse
    from keras_transformer.training.loop import build_trainer, finish, fit, write_results
    from keras_transformer.training.strategy import decoding_strategy, make_strategy, share_cores, strategy_of_gpus
    from keras_transformer.training.workers import Workers, prepare_on_all
    from keras_transformer.translator import Translator

    score = partial(evaluate, tokenize=config.tokenize)
    score(["one"], ["one"])  # a wrong --tokenize is found before the long work
    share_cores(config.strategy, config.batch_tokens)
    keras.utils.set_random_seed(config.seed)  # before any tokenizer is made: it would lose its model
    if dry_run:
        return rehearse(config)
    strategy = make_strategy(config.strategy)
    workers = Workers(strategy)
    with workers.ending_together():
        run, data = prepare_on_all(config, workers)
        with strategy.scope():
            trainer = build_trainer(config, data.tokenizer.vocabulary_size)
        greedy = Translator(
            trainer.transformer,
            data.tokenizer,
            beam_size=1,
            max_length=config.max_length,
            batch_size=64,
            strategy=decoding_strategy(strategy),
        )
        last_epoch = fit(config, run, data, trainer, workers.share(greedy.translate), lambda *texts: score(*texts).bleu)
    if not workers.is_chief:
        return
    finish(config, run, data, last_epoch)

    name, pairs = ("test", data.corpus.test) if data.corpus.test else ("validation", data.corpus.validation)
    sources, references = zip(*pairs, strict=True)
    with tqdm(total=len(sources), desc=f"{name} set", disable=None) as progress:
        translations = Translator.load(run.path, strategy=strategy_of_gpus()).translate(list(sources), progress.update)
    evaluation = score(translations, references)
    write_results(config, run, data, name, evaluation)
    print(f"{name} set, beam {config.beam_size}:\n{describe(evaluation)}")
    print(
        f"\ntranslate:  python translate.py --model_dir {run.path}"
        f"\nwatch:      tensorboard --logdir {run.logs}"
        f"\nexport:     python export.py --model_dir {run.path} --export_dir exports/{run.path.name}"
    )


if __name__ == "__main__":
    exit_on_sigterm()
    with mistakes_as_lines():
        config, dry_run = parse_training(sys.argv[1:], DESCRIPTION)
        import_tensorflow()
        try:
            main(config, dry_run)
        except KeyboardInterrupt:
            sys.exit(130)
