"""Measures how many terms of a glossary a model keeps, and the cost in BLEU.

    python -m benchmarks.protection --model_dir RUN --baseline PLAIN_RUN --data DIR --set test2016

RUN was trained with --protect, PLAIN_RUN without. DIR is as `--dataset files:DIR` reads it; the terms are learnt from
its training pairs. A term is a word that the lexicon of the training pairs translates by one with a capital letter: in
German, a noun or a name. 500 sentences of the set with a term on both sides are drawn. Each sentence gets a glossary of
one to three of its terms, drawn at random, with the words of its reference as target forms. The table has

- terms: the share of the target forms that the translation has exactly once, as whole words; a model may also give the
  same word for another word of the sentence;
- BLEU: of the whole translations;
- BLEU, terms apart: the target forms are taken out of the translations and of the references first.
"""

import argparse
import random
import re
from pathlib import Path

from keras_transformer.cli.console import import_tensorflow

MOST_TERMS = 3  # of a sentence
MARK = re.compile("⟦[0-9]⟧")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="run that was trained with --protect")
    parser.add_argument("--baseline", help="run that was trained without; left out, it is not in the table")
    parser.add_argument("--data", type=Path, required=True, help="directory of train.LANG and SET.LANG")
    parser.add_argument("--set", required=True, help="name of the set to translate, such as val")
    parser.add_argument("--source_lang", default="en")
    parser.add_argument("--target_lang", default="de")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def draw_terms(pairs, terms, count, seed):
    """`count` pairs with a glossary each: list of (source, reference, dict source form -> target form)."""
    from keras_transformer.tools.variation.protected_pairs import find_shared

    rng, drawn = random.Random(seed), []
    for source, reference in rng.sample(pairs, len(pairs)):
        shared = [spans for spans in find_shared(source, reference, terms) if reference[spans[1][0]].isupper()]
        chosen = rng.sample(shared, min(len(shared), rng.randint(1, MOST_TERMS)))
        if chosen:
            drawn.append((source, reference, {source[slice(*a)]: reference[slice(*b)] for a, b in chosen}))
    return drawn[:count]


def share_kept(translations, glossaries):
    """The share of the target forms that their translation has exactly once."""
    kept = [
        len(re.findall(rf"(?<!\w){re.escape(form)}(?!\w)", text)) == 1
        for text, glossary in zip(translations, glossaries, strict=True)
        for form in glossary.values()
    ]
    return sum(kept) / len(kept)


def without_terms(texts, glossaries):
    """The texts without the target forms."""
    return [
        re.sub("|".join(rf" ?(?<!\w){re.escape(form)}(?!\w)" for form in glossary.values()), "", text)
        for text, glossary in zip(texts, glossaries, strict=True)
    ]


def main(arguments):
    from keras_transformer.data.text_files import open_aligned_files
    from keras_transformer.evaluation import measure
    from keras_transformer.protection import Protection
    from keras_transformer.runs import load
    from keras_transformer.tools.variation.protected_pairs import learn_terms

    languages = (arguments.source_lang, arguments.target_lang)
    train, held_out = (
        list(open_aligned_files(*(arguments.data / f"{name}.{language}" for language in languages)))
        for name in ("train", arguments.set)
    )
    drawn = draw_terms(held_out, learn_terms(*zip(*train, strict=True)), arguments.sentences, arguments.seed)
    sources, references, glossaries = zip(*drawn, strict=True)
    hidden = [Protection(glossary, patterns=False).hide(source) for source, _, glossary in drawn]
    model, baseline = load(arguments.model_dir), load(arguments.baseline) if arguments.baseline else None
    found = model.translate([each.text for each in hidden])
    marks = [(mark, text) for each, text in zip(hidden, found, strict=True) for mark in MARK.findall(each.text)]
    once = sum(text.count(mark) == 1 for mark, text in marks)
    kept = [each.restore(text) for each, text in zip(hidden, found, strict=True)]
    systems = {
        **({"trained without --protect": baseline.translate(list(sources))} if baseline else {}),
        "trained with --protect, no glossary": model.translate(list(sources)),
        "trained with --protect, with the glossary": kept,
    }
    print(f"{len(drawn)} sentences of {arguments.set}, {sum(map(len, glossaries))} terms")
    print(f"{once} of {len(marks)} placeholders come exactly once\n")
    print("| model | terms | BLEU | BLEU, terms apart |\n|---|---|---|---|")
    for name, texts in systems.items():
        whole = measure(texts, references)
        apart = measure(without_terms(texts, glossaries), without_terms(references, glossaries))
        print(f"| {name} | {100 * share_kept(texts, glossaries):.2f} % | {whole.bleu:.2f} | {apart.bleu:.2f} |")
    print(f"\n{whole.bleu_signature}")


if __name__ == "__main__":
    parsed = parse_arguments()
    import_tensorflow()
    main(parsed)
