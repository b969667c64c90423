"""Trains a Transformer on sentence pairs: data and preset in, run directory out."""

import sys

from keras_transformer.cli import console
from keras_transformer.cli.flags import TRAINING_FLAGS, parse_training

DESCRIPTION = """Train a model to translate. After an interruption, the same command goes on.

  python train.py
      learns dates, numbers, prices and names from Unicode locale data: no download, 8 minutes on 2 cores
  python train.py --dataset files:DIR --source_lang en --target_lang de --preset tiny --model_dir runs/mine
      learns from the lines of DIR/train.en and DIR/train.de, validates with DIR/val.*, and tests with DIR/test.*
  python train.py --dataset tfds:ted_hrlr_translate/pt_to_en --preset small --model_dir runs/ted
      learns from a corpus of TensorFlow Datasets, which is downloaded once
  python train.py --dataset files:DIR --dataset tfds:NAME:0.3 ...
      learns from both: every epoch takes all pairs of the first corpus and 30 % of the second, each time others
  python train.py --dataset files:DIR@en-de --dataset files:DIR@de-en --dataset cldr:en-ja ...
      learns several directions in one model. A tag tells the model the language of a translation
  python train.py --dataset files:NEW --init_from runs/mine --replay 0.2 --extend_vocabulary 500 ...
      trains an old run further on new text, with up to 500 new pieces. 20 % of the pairs come from the old text, so
      that the model does not forget
  python train.py ... --dry_run
      prints all settings, figures of the corpus, and an estimate of time and memory. It trains nothing"""


def main(config, dry_run):
    """Trains, or rehearses that."""
    from keras_transformer.evaluation import choose_tokenization, describe, measure
    from keras_transformer.process import keep_freed_memory
    from keras_transformer.training.train import train

    if dry_run:
        from keras_transformer.training.dry_run import rehearse

        return rehearse(config)
    keep_freed_memory()
    trained = train(config, measure, choose_tokenization, owns_process=True)
    if trained is None:  # on all workers but the first
        return
    run, evaluated_set, evaluation = trained
    print(f"{evaluated_set} set, beam {config.beam_size}:\n{describe(evaluation)}")
    print(
        f"\ntranslate:  {console.command('translate')} --model_dir {run.path}"
        f"\nwatch:      tensorboard --logdir {run.path / 'logs'}"
        f"\nexport:     {console.command('export')} --model_dir {run.path} --export_dir exports/{run.path.name}"
    )


def program():
    """The program, from its command line to its exit status."""
    with console.program(TRAINING_FLAGS):
        config, dry_run = parse_training(sys.argv[1:], DESCRIPTION)
        console.import_tensorflow()
        main(config, dry_run)
