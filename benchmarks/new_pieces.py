"""Counts the pieces of new text: by a tokenizer of old text, by this tokenizer with new pieces, and by a new tokenizer.

    python -m benchmarks.new_pieces --old DIR --new DIR --source_lang en --target_lang de --pairs 20000

Both directories are as `--dataset files:DIR` reads them. The tokenizers learn from the training pairs; from the new
text, only the first `--pairs` count. The table counts the pieces of a sentence of the validation pairs, in Markdown.
"""

import argparse
from itertools import chain, islice

from keras_transformer.cli.console import import_tensorflow


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="directory of the text that the tokenizer has learnt from")
    parser.add_argument("--new", required=True, help="directory of the new text")
    parser.add_argument("--source_lang", required=True)
    parser.add_argument("--target_lang", required=True)
    parser.add_argument("--pairs", type=int, default=20_000, help="training pairs of the new text (default: 20,000)")
    parser.add_argument("--vocabulary_size", type=int, default=8000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 8000], help="numbers of new pieces")
    return parser.parse_args()


def main(arguments):
    import sentencepiece

    from keras_transformer.data.text_files import text_files_corpus
    from keras_transformer.tokenizer import train_tokenizer
    from keras_transformer.tools.importing.new_pieces import append_pieces, learn_pieces

    languages = arguments.source_lang, arguments.target_lang
    old, new = (text_files_corpus(directory, *languages) for directory in (arguments.old, arguments.new))
    text = list(chain.from_iterable(islice(new.train, arguments.pairs)))
    model = train_tokenizer(chain.from_iterable(old.train), arguments.vocabulary_size)
    models = {f"the old text, {arguments.vocabulary_size:,} pieces": model}
    for size in arguments.sizes:
        pieces = learn_pieces(model, text, size)
        models[f"and {len(pieces):,} new pieces"] = append_pieces(model, pieces)
    models[f"the new text alone, {arguments.vocabulary_size:,} pieces"] = train_tokenizer(
        text, arguments.vocabulary_size
    )
    print("| tokenizer of | pieces of a new sentence | of an old one |\n|---|---|---|")
    for name, each in models.items():
        processor = sentencepiece.SentencePieceProcessor(model_proto=each)
        counts = []
        for corpus in (new, old):
            sentences = processor.encode(list(chain.from_iterable(corpus.validation)))
            counts.append(sum(map(len, sentences)) / len(sentences))
        print(f"| {name} | {counts[0]:.2f} | {counts[1]:.2f} |")


if __name__ == "__main__":
    parsed = parse_arguments()
    import_tensorflow()
    main(parsed)
