"""The measurements and the pictures of docs/tour/, beside the pages that show them.

    python -m benchmarks.tour                                      all six pages
    python -m benchmarks.tour --pages recurrence latent_attention  the pages that train: minutes each on one core

The page on translating step by step needs a run: `python train.py` trains runs/quickstart. The measurements are printed
as tables.
"""

import argparse

from keras_transformer.cli.console import import_tensorflow, program

DRAWN = ("lookup", "recurrence", "order", "square_root", "latent_attention", "step_by_step")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", nargs="+", choices=DRAWN, default=DRAWN, help="pages to draw for (default: all)")
    parser.add_argument("--model_dir", default="runs/quickstart", help="run that translates step by step")
    parser.add_argument("--text", default="Tuesday, December 18, 2001", help="text that it translates")
    return parser.parse_args()


def main(arguments):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # one core, as the figures of the pages
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import keras_transformer as kt
    from benchmarks.tour import pictures

    # First: a wrong directory fails before minutes of measuring, and the seeds of other pages would end its tokenizer.
    translator = kt.load(arguments.model_dir) if "step_by_step" in arguments.pages else None
    for page in sorted(arguments.pages, key="step_by_step".__ne__):
        draw = getattr(pictures, f"draw_{page}")
        figure = draw(translator, arguments.text) if page == "step_by_step" else draw()
        path = pictures.PAGES / f"{page}.png"
        figure.savefig(path, dpi=110)
        print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    with program():
        parsed = parse_arguments()
        import_tensorflow()
        main(parsed)
