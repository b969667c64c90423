"""Trains a Transformer on sentence pairs: data and preset in, run directory out."""

import sys

from keras_transformer.cli import console
from keras_transformer.cli.flags import TRAINING_FLAGS, parse_training

DESCRIPTION = """Train a Transformer to translate. The same command goes on where an earlier run stopped.

  python train.py
      learns dates, numbers, prices and names from Unicode locale data; no download, 8 minutes on 2 cores
  python train.py --dataset files:DIR --source_lang en --target_lang de --preset tiny --model_dir runs/mine
      learns from DIR/train.en and DIR/train.de, line by line, with DIR/val.* to validate and DIR/test.* to test
  python train.py --dataset tfds:ted_hrlr_translate/pt_to_en --preset small --model_dir runs/ted
      learns from a corpus of TensorFlow Datasets, downloaded once
  python train.py --dataset files:DIR --dataset tfds:NAME:0.3 ...
      learns from both: every epoch takes all of the first, and other three of ten pairs of the second each time
  python train.py --dataset files:NEW --init_from runs/mine --replay 0.2 --extend_vocabulary 500 ...
      goes on with new text and up to 500 new pieces; a fifth of the pairs are of the old text, against forgetting
  python train.py ... --dry_run
      prints settings, figures of the corpus, and about how long and in how much memory it would train"""


def main(config, dry_run):
    """Trains, or rehearses that."""
    from keras_transformer.evaluation import describe
    from keras_transformer.process import keep_freed_memory, share_cores
    from keras_transformer.runs import train
    from keras_transformer.training.dry_run import rehearse

    if dry_run:
        return rehearse(config)
    keep_freed_memory()
    share_cores(config.strategy, config.batch_tokens)
    run = train(config=config)
    if run is None:  # on all workers but the first
        return
    print(f"{run.evaluated_set} set, beam {config.beam_size}:\n{describe(run.evaluation)}")
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
