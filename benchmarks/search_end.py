"""What the rule that ends a beam search costs and gives, next to one that ends it earlier and one that ends it later.

    python -m benchmarks.search_end --model_dir runs/multi30k --source DIR/val.en --reference DIR/val.de

For each length penalty, a beam of 4 translates the source once under each rule. "W finished" ends a sentence when 4
hypotheses have finished; "none ahead" is the rule of `beam_search`; "none can win" waits for every hypothesis that
could still overtake. Greedy search comes first: the last column counts the sentences that a beam scores below it.
"""

import argparse
import time
from pathlib import Path

from keras_transformer.cli.console import import_tensorflow

LENGTH_PENALTIES = (0.0, 0.6, 1.0, 1.8)
TOLERANCE = 1e-5  # of a score


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--checkpoint", default="average", help="of the run (default: average)")
    parser.add_argument("--source", required=True, help="file of sentences")
    parser.add_argument("--reference", required=True, help="file of their translations")
    parser.add_argument("--length_penalties", type=float, nargs="+", default=LENGTH_PENALTIES)
    return parser.parse_args()


def rules():
    """Name -> function with the arguments and the result of `beam._is_decided`."""
    import tensorflow as tf

    from keras_transformer.decoding import beam
    from keras_transformer.decoding.search import IMPOSSIBLE

    def w_finished(live, finished, limits, options, wanted):
        is_full = tf.gather(finished.scores, options["beam_size"][:, 0] - 1, batch_dims=1) > IMPOSSIBLE
        return is_full | none_ahead(live, finished, limits, options, wanted)

    def none_can_win(live, finished, limits, options, wanted):
        never_full = tf.fill(tf.shape(options["beam_size"]), finished.scores.shape[1] + 1)
        nothing = tf.fill([tf.shape(finished.scores)[0], 1], IMPOSSIBLE)
        finished = finished._replace(scores=tf.concat([finished.scores, nothing], axis=1))
        return none_ahead(live, finished, limits, {**options, "beam_size": never_full}, wanted)

    none_ahead = beam._is_decided
    return {"W finished": w_finished, "none ahead": none_ahead, "none can win": none_can_win}


def main(arguments):
    import tensorflow as tf
    from sacrebleu.metrics import BLEU

    import keras_transformer as kt
    from keras_transformer.decoding import beam

    sources, references = (
        Path(path).read_text(encoding="utf-8").splitlines() for path in (arguments.source, arguments.reference)
    )
    run, metric, steps = kt.load(arguments.model_dir, arguments.checkpoint), BLEU(), tf.Variable(0, dtype=tf.int64)
    all_rules = rules()

    def row(translations, seconds="", below=""):
        bleu = metric.corpus_score([translation.text for translation in translations], [references])
        return f"{bleu.score:.2f} | {bleu.sys_len / bleu.ref_len:.3f} | {int(steps) or ''} | {seconds} | {below} |"

    print("| length penalty | search | BLEU | length ratio | steps of sentences | processor s | below greedy |")
    print("|---|---|---|---|---|---|---|")
    for alpha in arguments.length_penalties:
        steps.assign(0)
        greedy = run.with_model(run.model, beam_size=1, length_penalty=alpha).translate_scored(sources)
        print(f"| {alpha:g} | greedy | {row(greedy)}")
        for name, rule in all_rules.items():

            def counted(live, *rest, rule=rule):
                steps.assign_add(tf.shape(live.lengths, out_type=tf.int64)[0])
                return rule(live, *rest)

            beam._is_decided = counted
            translator = run.with_model(run.model, beam_size=4, length_penalty=alpha)
            translator.translate_scored(sources[:1])  # traces the graph
            steps.assign(0)
            start = time.process_time()
            found = translator.translate_scored(sources)
            seconds = time.process_time() - start
            below = sum(b.score < g.score - TOLERANCE for b, g in zip(found, greedy, strict=True))
            print(f"| {alpha:g} | {name} | {row(found, f'{seconds:.1f}', below)}", flush=True)
    print(f"\nBLEU: {metric.get_signature()}")


if __name__ == "__main__":
    parsed = parse_arguments()
    import_tensorflow()
    main(parsed)
