"""Trains a Transformer on sentence pairs: data and preset in, run directory out."""

import sys
from functools import partial

from keras_transformer.cli.console import exit_on_sigterm, import_tensorflow, mistakes_as_lines
from keras_transformer.cli.flags import parse_training

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

    from keras_transformer.evaluation import describe, evaluate
    from keras_transformer.training.dry_run import rehearse
    from keras_transformer.training.run import train
    from keras_transformer.training.strategy import share_cores

    score = partial(evaluate, tokenize=config.tokenize)
    score(["one"], ["one"])  # a wrong --tokenize is found before the long work
    share_cores(config.strategy, config.batch_tokens)
    keras.utils.set_random_seed(config.seed)  # before any tokenizer is made: it would lose its model
    if dry_run:
        return rehearse(config)
    trained = train(config, score)
    if trained is None:  # on all workers but the first
        return
    run, name, evaluation = trained
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
