"""The request to translate.py: its flags, which of them go together, and the output lines of a text."""

import json
from dataclasses import dataclass

import numpy as np

from keras_transformer.cli.flags import (
    RUN_OPTIONS,
    add_option_arguments,
    check_litert,
    check_ranges,
    check_width,
    sampling_options,
    search_options,
)
from keras_transformer.errors import UserError
from keras_transformer.process import find_tool

SCORE_DIGITS, ALIGNMENT_DIGITS = 6, 4
SAMPLES, UTILITIES = 64, ("chrf", "bleu")  # of minimum Bayes risk
MODES = ("sample", "mbr", "n_best", "reverse", "explain", "score")  # flags that choose another result than the best


@dataclass(frozen=True)
class Request:
    """The results that are wanted of every text, and the format of their lines.

    Attributes:
        options: dict, options of `TextTranslator.translate`.
        sampling: dict, options of `TextTranslator.sample`; None for translations that are not drawn at random.
        n_best: int, how many of the best translations are wanted; None for the best alone, without a list.
        explain: bool, whether pieces, their scores and their alignment with the source are wanted as well.
        json: bool, whether a text gives a JSON object instead of plain translations.
        score: bool, whether the scores of given translations are wanted; each text is then `text TAB translation`.
        mbr: str, the utility by which one of several samples is chosen; None for one sample.
        samples: int, how many samples `mbr` chooses from.
    """

    options: dict
    sampling: dict | None = None
    n_best: int | None = None
    explain: bool = False
    json: bool = False
    score: bool = False
    mbr: str | None = None
    samples: int = SAMPLES

    @classmethod
    def of(cls, arguments):
        """The request of parsed flags.

        Raises:
            UserError: for a value out of range, and for flags that do not go together.
        """
        check_ranges(arguments)
        check_litert(arguments, *MODES)
        _check_together(arguments)
        samples = SAMPLES if arguments.samples is None else arguments.samples
        _check_reranking(arguments, samples)
        return cls(
            search_options(arguments),
            sampling_options(arguments) if arguments.sample or arguments.mbr else None,
            arguments.n_best,
            arguments.explain,
            arguments.json,
            arguments.score,
            arguments.mbr,
            samples,
        )

    @property
    def lines_each(self):
        """The number of output lines of a text."""
        return 1 if self.json else self.n_best or 1

    def check_width(self, translator):
        """Raises UserError for more alternatives or hypotheses than the translator's search keeps."""
        check_width(translator, n_best=self.n_best, beam_size=self.options.get("beam_size"))

    def lines(self, translator, texts, on_progress=None, reverse=None):
        """Translates texts, or scores their translations.

        Args:
            translator: `TextTranslator`.
            texts: list of str.
            on_progress: called with the number of texts done since the last call.
            reverse: `TextTranslator` of the reverse direction, which ranks the translations; None for none.

        Returns:
            list of list of str: for every text, `lines_each` lines without their ends.

        Raises:
            UserError: if translations are to be scored, and a line has none.
        """
        if self.score:
            return self._scores(translator, texts, on_progress)
        if not self.explain:
            found = self._translate(translator, texts, on_progress, reverse)
            explanations = [None] * len(texts)
        else:  # two passes; the progress counts the second
            found = self._translate(translator, texts)
            explanations = translator.explain(texts, on_progress)
        if not self.json:
            return [[translation.text.replace("\n", " ") for translation in row] for row in found]
        recall = getattr(translator, "recall", lambda texts: [None] * len(texts))  # of a translation memory
        rows = zip(texts, found, explanations, recall(texts), strict=True)
        return [[json.dumps(self._object(*row), ensure_ascii=False)] for row in rows]

    def _translate(self, translator, texts, on_progress=None, reverse=None):
        """list of list of `Translation`, best first."""
        if reverse is not None:
            ranked = find_tool("reranking", "--reverse").rerank(translator, texts, reverse, on_progress)
            return [row[: self.n_best or 1] for row in ranked]
        if self.n_best is not None:
            return [row[: self.n_best] for row in translator.alternatives(texts, on_progress)]
        if self.mbr is not None:
            choose = find_tool("reranking", "--mbr").minimum_bayes_risk
            found = choose(translator, texts, self.samples, self.mbr, on_progress, **self.sampling)
        elif self.sampling is not None:
            found = translator.sample(texts, on_progress, **self.sampling)
        else:
            found = translator.translate_scored(texts, on_progress, **self.options)
        return [[translation] for translation in found]

    def _scores(self, translator, lines, on_progress):
        """list of list of one str: the score of each line's translation, or its JSON object."""
        for line in lines:
            if line.count("\t") != 1:
                raise UserError(f"--score needs a text, a tab and its translation on every line. Received: {line!r}")
        pairs = [line.split("\t") for line in lines]
        found = translator.score([text for text, _ in pairs], [translation for _, translation in pairs], on_progress)
        if not self.json:
            return [[f"{score.score:.{SCORE_DIGITS}f}"] for score in found]
        objects = [
            {
                "text": text,
                "translation": translation,
                "score": round(score.score, SCORE_DIGITS),
                "pieces": list(score.pieces),
                "token_scores": _rounded(score.token_scores, SCORE_DIGITS),
            }
            for (text, translation), score in zip(pairs, found, strict=True)
        ]
        return [[json.dumps(described, ensure_ascii=False)] for described in objects]

    def _object(self, text, translations, explanation, matches):
        rows = [{"translation": row.text, "score": round(row.score, SCORE_DIGITS)} for row in translations]
        described = {"text": text, **rows[0]}
        if self.n_best is not None:
            described["alternatives"] = rows
        if explanation is not None:
            described["source_pieces"] = list(explanation.source_pieces)
            described["pieces"] = list(explanation.pieces)
            described["token_scores"] = _rounded(explanation.token_scores, SCORE_DIGITS)
            described["alignment"] = _rounded(explanation.alignment, ALIGNMENT_DIGITS)
        if matches is not None:
            described["memory"] = [match._asdict() for match in matches]
        return described


def add_request_arguments(parser):
    """Adds to an argparse parser the flags of translate.py that choose the results for every line."""
    parser.add_argument(
        "--n_best",
        type=int,
        metavar="N",
        help="write the N best translations of every line, on N lines, the best first. N is at most the beam size",
    )
    parser.add_argument("--sample", action="store_true", help="draw translations at random, likely ones more often")
    parser.add_argument(
        "--mbr",
        choices=UTILITIES,
        help="minimum Bayes risk: draw several translations of every line, and write the translation that is most like "
        "all of them, by sacreBLEU's chrF or BLEU of a sentence. The score of --json is the mean, 0 to 100",
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help=f"only with --mbr: how many translations of every line are drawn (default: {SAMPLES})",
    )
    add_option_arguments(parser, "sample", prefix="only with --sample or --mbr: ")
    parser.add_argument(
        "--reverse",
        metavar="RUN",
        help="run directory or export of a model of the reverse direction. It ranks the translations of the beam by "
        "the sum of two scores: of the translation given the line, and of the line given the translation",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="write a JSON object for every line: text, translation and score, and with --n_best the alternatives",
    )
    parser.add_argument(
        "--score",
        action="store_true",
        help="score given translations. Every line is a text, a tab and its translation. The score is the "
        "log-probability, divided by the length penalty. --json adds the scores of the pieces",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="only with --json: add source_pieces, pieces, token_scores and alignment to the object. The alignment has "
        "a row of weights on the source's pieces for each piece",
    )


def _check_together(arguments):
    modes = [name for name in MODES if getattr(arguments, name)]
    if len(modes) > 1 and modes != ["n_best", "reverse"]:
        raise UserError(f"--{modes[0]} and --{modes[1]} do not go together: leave one out")
    if arguments.explain and not arguments.json:
        raise UserError("--explain needs --json: pieces and alignment do not fit into a line of text")
    if arguments.shortlist is not None and modes and modes[0] not in ("n_best", "reverse"):
        raise UserError(f"--shortlist does not go with --{modes[0]}, which uses all pieces: leave --shortlist out")
    if arguments.score and (arguments.protect or arguments.glossary):
        name = "protect" if arguments.protect else "glossary"
        raise UserError(f"--{name} does not go with --score, which reads translations as they are: leave one out")
    if arguments.samples is not None and not arguments.mbr:
        raise UserError("--samples needs --mbr: give both, or leave --samples out")
    is_drawn = arguments.sample or arguments.mbr
    given = list(sampling_options(arguments))
    if given and not is_drawn:
        raise UserError(f"--{given[0]} needs --sample or --mbr: give both, or leave --{given[0]} out")
    refused = list(search_options(arguments))
    if is_drawn:  # sampling has no beam
        refused += [name for name in RUN_OPTIONS if getattr(arguments, name) is not None]
    if modes and refused:
        is_inside = arguments.saved_model and refused[0] in RUN_OPTIONS
        beside = " beside --saved_model, which has its own" if is_inside else ""
        raise UserError(f"--{refused[0]} does not go with --{modes[0]}{beside}: leave one out")


def _check_reranking(arguments, samples):
    """Raises UserError without the tool that chooses among translations, and for a wrong number of samples."""
    if arguments.reverse:
        find_tool("reranking", "--reverse")
    if arguments.mbr:
        find_tool("reranking", "--mbr").check_choice(samples, arguments.mbr)


def _rounded(numbers, digits):
    """Nested lists of Python numbers: as text they are shorter than float32 values."""
    return np.asarray(numbers, "float64").round(digits).tolist()
