"""What translate.py is asked for: its flags, which of them go together, and the lines that a text gives."""

import json
from dataclasses import dataclass

import numpy as np

from keras_transformer.command_line import check_ranges, check_width, search_options

SAMPLING = ("temperature", "top_k", "top_p", "seed")
SCORE_DIGITS, ALIGNMENT_DIGITS = 6, 4


@dataclass(frozen=True)
class Request:
    """What is asked of a translator, and how it is written.

    Attributes:
        options: dict, those of `TextTranslator.translate`.
        sampling: dict, those of `TextTranslator.sample`; None if nothing is to be drawn at random.
        n_best: int, how many of the best translations are wanted; None for the best alone, without a list.
        explain: bool, whether pieces, their scores and where they come from are wanted, too.
        json: bool, whether a text gives a JSON object rather than plain translations.
    """

    options: dict
    sampling: dict | None = None
    n_best: int | None = None
    explain: bool = False
    json: bool = False

    @classmethod
    def of(cls, arguments):
        """Of the flags that were parsed.

        Raises:
            ValueError: for a value out of range, and for flags that do not go together.
        """
        check_ranges(arguments)
        _check_together(arguments)
        sampling = {name: value for name in SAMPLING if (value := getattr(arguments, name)) is not None}
        return cls(
            search_options(arguments),
            sampling if arguments.sample else None,
            arguments.n_best,
            arguments.explain,
            arguments.json,
        )

    @property
    def lines_each(self):
        """How many lines a text gives."""
        return 1 if self.json else self.n_best or 1

    def check_width(self, translator):
        """Raises ValueError for more than the translator's search keeps."""
        check_width(translator, n_best=self.n_best, beam_size=self.options.get("beam_size"))

    def lines(self, translator, texts, on_progress=None):
        """Translates texts.

        Args:
            translator: `TextTranslator`.
            texts: list of str.
            on_progress: called with the number of texts done since the last call.

        Returns:
            list of list of str: for every text, `lines_each` lines without their ends.
        """
        if not self.explain:
            found = self._translate(translator, texts, on_progress)
            explanations = [None] * len(texts)
        else:  # two passes, of which the second is counted
            found = self._translate(translator, texts)
            explanations = translator.explain(texts, on_progress)
        if not self.json:
            return [[translation.text.replace("\n", " ") for translation in row] for row in found]
        rows = zip(texts, found, explanations, strict=True)
        return [[json.dumps(self._object(*row), ensure_ascii=False)] for row in rows]

    def _translate(self, translator, texts, on_progress=None):
        """list of list of `Translation`, best first."""
        if self.n_best is not None:
            return [row[: self.n_best] for row in translator.alternatives(texts, on_progress)]
        if self.sampling is not None:
            found = translator.sample(texts, on_progress, **self.sampling)
        else:
            found = translator.translate_scored(texts, on_progress, **self.options)
        return [[translation] for translation in found]

    def _object(self, text, translations, explanation):
        rows = [{"translation": row.text, "score": round(row.score, SCORE_DIGITS)} for row in translations]
        described = {"text": text, **rows[0]}
        if self.n_best is not None:
            described["alternatives"] = rows
        if explanation is not None:
            described["source_pieces"] = list(explanation.source_pieces)
            described["pieces"] = list(explanation.pieces)
            described["token_scores"] = _rounded(explanation.token_scores, SCORE_DIGITS)
            described["alignment"] = _rounded(explanation.alignment, ALIGNMENT_DIGITS)
        return described


def add_request_arguments(parser):
    """Adds to an argparse parser the flags of translate.py that say what is wanted of every line."""
    parser.add_argument("--prefix", help="what every translation has to begin with")
    parser.add_argument(
        "--n_best", type=int, help="the N best of every line, best first, on N lines; N is at most the beam size"
    )
    parser.add_argument("--sample", action="store_true", help="draw translations at random, likely ones more often")
    parser.add_argument(
        "--temperature", type=float, help="of --sample: below 1 likely tokens become likelier (default: 1)"
    )
    parser.add_argument("--top_k", type=int, help="of --sample: only the K likeliest tokens; 0 allows all (default: 0)")
    parser.add_argument(
        "--top_p", type=float, help="of --sample: only the likeliest tokens of this probability together (default: 1)"
    )
    parser.add_argument("--seed", type=int, help="of --sample: the same seed gives the same translation (default: 0)")
    parser.add_argument(
        "--json", action="store_true", help="a JSON object a line: text, translation, score; with --n_best alternatives"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="add to the object: source_pieces, pieces, token_scores, and alignment (a row of weights on the source's "
        "pieces for each piece)",
    )


def _check_together(arguments):
    modes = [name for name in ("sample", "n_best", "explain") if getattr(arguments, name)]
    if len(modes) > 1:
        raise ValueError(f"--{modes[0]} and --{modes[1]} do not go together: leave one out")
    if arguments.explain and not arguments.json:
        raise ValueError("--explain needs --json: pieces and alignment do not fit into a line of text")
    given = [name for name in SAMPLING if getattr(arguments, name) is not None]
    if given and not arguments.sample:
        raise ValueError(f"--{given[0]} is of random translations: give --sample, too, or leave it out")
    refused = list(search_options(arguments))
    if arguments.sample:  # which has no beam
        refused += [name for name in ("beam_size", "length_penalty") if getattr(arguments, name) is not None]
    if modes and refused:
        is_inside = arguments.saved_model and refused[0] in ("beam_size", "length_penalty")
        beside = " beside --saved_model, which has its own" if is_inside else ""
        raise ValueError(f"--{refused[0]} does not go with --{modes[0]}{beside}: leave one out")


def _rounded(numbers, digits):
    """As (nested) lists of Python's own numbers; those of float32 would not be as short."""
    return np.asarray(numbers, "float64").round(digits).tolist()
