"""Real target tokens per second of `model.fit`, and the share of the machine's peak rate.

    python -m benchmarks.train_speed --dataset files:DIR --source_lang en --target_lang de --preset tiny
    python -m benchmarks.train_speed ... --baseline "onmt-main --config config.yml --model model.py train"

Takes every flag of train.py. After a warm-up, the script times windows of updates inside `fit` and prints the median.
It also prints the share of padding. For a Transformer, it counts the floating-point operations per target token from
the shapes, and compares the operations per second with the measured rate of matrix products on this machine.

With `--baseline COMMAND`, it then runs a peer's training of the same model on the same machine, and prints how much
faster ours is. The peer must report its rate again and again as "N target", as OpenNMT-tf does, and end by itself. The
first report counts as the peer's warm-up.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time

from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.cli.train import parse_config
from keras_transformer.errors import UserError

WARM_UP = 12  # Updates.
WINDOWS, WINDOW = 5, 20  # Number of timed windows, and updates per window.
BASELINE_RATE = re.compile(r"([0-9][0-9,.]*) target\b")  # target tokens/s in the output of a peer


def parse_arguments(arguments):
    """The `Config` of the flags of train.py, and the command of the baseline or None."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--baseline")
    own, others = parser.parse_known_args(arguments)
    return parse_config(others, __doc__), own.baseline


def operations_per_target_token(config, vocabulary_size, source_per_target):
    """Counts the multiplications and additions of one update per target token: once forward, twice backward."""
    d, f = config.d_model, config.d_ff
    d_key = config.d_key or d // config.num_heads
    width = d_key + (config.d_value or d_key)  # of a head: queries and means of values, or keys and values.
    asking, asked = config.num_heads * width, (config.num_key_value_heads or config.num_heads) * width
    encoders, decoders = config.num_layers, config.num_decoder_layers or config.num_layers
    attention = 2 * d * (asking + asked)
    encoder = encoders * (attention + 4 * d * f)  # Per source token.
    memory = decoders * 2 * d * asked  # Keys and values of the memory, per source token.
    decoder = decoders * (attention + 2 * d * asking + 4 * d * f)
    logits = 2 * d * vocabulary_size
    return 3 * (source_per_target * (encoder + memory) + decoder + logits)


def matrix_rate(dtype, seconds=2.0):
    """Measures the floating-point operations per second of a 4096 x 512 by 512 x 2048 product."""
    import tensorflow as tf

    a, b = tf.ones((4096, 512), dtype), tf.ones((512, 2048), dtype)
    multiply = tf.function(lambda: tf.linalg.matmul(a, b))
    multiply()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        multiply()
        count += 1
    return count * 2 * 4096 * 512 * 2048 / (time.perf_counter() - started)


def time_updates(config, windows=WINDOWS, clock=time.perf_counter):
    """Trains for some updates, and times windows of them.

    Args:
        config: `Config` of the run.
        windows: number of timed windows.
        clock: function that gives the seconds so far.

    Returns:
        real target tokens/s of every window, a list; the share of padding in the target; the prepared `Data`; and the
        number of replicas.
    """
    import keras

    class Windows(keras.callbacks.Callback):
        """Records the time and the real target tokens after the warm-up and after every window."""

        def __init__(self):
            super().__init__()
            self.marks = []

        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 >= WARM_UP and (batch + 1 - WARM_UP) % WINDOW == 0:
                self.marks.append((clock(), float(self.model.loss_metric.count.value.read_value())))

    steps, marked = WARM_UP + windows * WINDOW, Windows()
    batches, data, replicas = fit_updates(config, steps, marked)
    rates = [(t1 - t0) / (s1 - s0) for (s0, t0), (s1, t1) in zip(marked.marks, marked.marks[1:], strict=False)]
    weights = [batch[1] != 0 for batch in batches.take(steps)]
    padding = 1 - sum(float(w.numpy().sum()) for w in weights) / sum(w.numpy().size for w in weights)
    return rates, padding, data, replicas


def fit_updates(config, steps, callback):
    """Trains for `steps` updates with a Keras callback: the batches, the prepared `Data`, the number of replicas."""
    import keras

    from keras_transformer.data.pipeline import Undivided, training_batches
    from keras_transformer.training.decide import Begun, Machine, decide, start_devices
    from keras_transformer.training.preparation import prepare
    from keras_transformer.training.run_directory import RunDirectory
    from keras_transformer.training.train import build_trainer

    keras.utils.set_random_seed(config.seed)
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(directory)
        data, machine = prepare(config, run), Machine.here(owns_process=True)
        config, data, plan, _ = decide(config, data, machine, Begun.of(run))
    strategy = start_devices(config, plan, machine)
    with strategy.scope():
        trainer = build_trainer(config, data, plan)
    batches = training_batches(data.train, config.batch_tokens, config.seed)
    trainer.fit(Undivided(batches), steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[callback])
    return batches, data, strategy.num_replicas_in_sync


def baseline_rates(command):
    """Runs a peer and shows what it prints: the target tokens/s of each of its reports but the first.

    Raises:
        UserError: if the command fails, or reports less than twice.
    """
    rates = []
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            rates += [float(rate.replace(",", "")) for rate in BASELINE_RATE.findall(line)]
    if process.returncode:
        raise UserError(f"the baseline ended with exit status {process.returncode}: {command}")
    if len(rates) < 2:
        raise UserError(f'the baseline must report "N target" at least twice. It did so {len(rates)} times: {command}')
    return rates[1:]


def main(config, baseline=None):
    from keras_transformer.process import keep_freed_memory

    keep_freed_memory()
    rates, padding, data, replicas = time_updates(config)
    rate = statistics.median(rates)
    print(f"{rate:,.0f} real target tokens/s (median of {WINDOWS} windows: {min(rates):,.0f} to {max(rates):,.0f})")
    print(f"{padding:.1%} of the target positions are padding")
    if config.architecture == "transformer":
        compare_with_products(config, data, rate, replicas)
    if baseline:
        others = baseline_rates(baseline)
        print(f"baseline: {statistics.median(others):,.0f} target tokens/s (median of {len(others)} reports)")
        print(f"ours is {rate / statistics.median(others):.2f} times as fast")


def compare_with_products(config, data, rate, replicas):
    """Prints the share of the machine's rate of matrix products that a training of `rate` target tokens/s takes."""
    from keras_transformer.training.decide import Machine, precision_of

    source_per_target = len(data.train.source.ids) / (len(data.train.target.ids) + len(data.train))
    operations = operations_per_target_token(config, data.target_tokenizer.vocabulary_size, source_per_target)
    machine = matrix_rate(precision_of(config, Machine.here(False))) * replicas  # each replica has its own threads
    print(f"{operations / 1e6:.1f} MFLOP per target token; {rate * operations / 1e9:.0f} GFLOP/s")
    print(f"{rate * operations / machine:.1%} of the measured matrix-product rate, {machine / 1e9:.0f} GFLOP/s")


if __name__ == "__main__":
    with program():
        config, baseline = parse_arguments(sys.argv[1:])
        import_tensorflow()
        main(config, baseline)
