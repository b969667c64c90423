import argparse
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer.cli.flags import add_translator_arguments
from keras_transformer.cli.request import Request, add_request_arguments
from keras_transformer.errors import UserError
from keras_transformer.translation.results import Translation

RUN, EXPORT = ("--model_dir", "runs/a"), ("--saved_model", "exports/a")
TEXTS = ["one two", "", "Größe\u2028 seven"]


def parse(*flags):
    parser = argparse.ArgumentParser()
    add_translator_arguments(parser)
    add_request_arguments(parser)
    return Request.of(parser.parse_args([str(flag) for flag in flags]))


class Recorder:
    """A translator that shouts, and remembers how it was asked."""

    width = 3

    def __init__(self):
        self.asked = []

    def translate_scored(self, texts, on_progress=None, **options):
        self.asked.append(("translate", options, on_progress))
        return [Translation(f"{text.upper()}\n!", -0.12345678) for text in texts]

    def sample(self, texts, on_progress=None, **options):
        self.asked.append(("sample", options, on_progress))
        return [Translation(text.title(), -1.5) for text in texts]

    def alternatives(self, texts, on_progress=None):
        self.asked.append(("alternatives", {}, on_progress))
        return [[Translation(f"{text}{n}", -n / 4) for n in range(self.width)] for text in texts]

    def score(self, texts, translations, on_progress=None):
        self.asked.append(("score", {}, on_progress))
        of_pieces = {"token_scores": np.float32([-0.1, -0.2])}
        pairs = zip(texts, translations, strict=True)
        return [SimpleNamespace(score=-len(text) / 3, pieces=[found, "</s>"], **of_pieces) for text, found in pairs]

    def explain(self, texts, on_progress=None):
        self.asked.append(("explain", {}, on_progress))
        explanation = SimpleNamespace(
            source_pieces=["▁a", "b"],
            pieces=["▁ä", "</s>", "x"],
            token_scores=np.float32([-0.1, -0.2, -0.30000001]),
            alignment=np.float32([[0.1, 0.9], [0.33333334, 0.6666667], [0, 1]]),
        )
        return [explanation] * len(texts)


def progress(count):
    pass


def asked_for(*flags):
    """(lines, calls) of what the flags make of `TEXTS`."""
    recorder = Recorder()
    lines = parse(*RUN, *flags).lines(recorder, TEXTS, progress)
    return lines, recorder.asked


def test_without_flags_a_text_gives_its_translation_in_one_line_and_json_one_object_with_the_text_as_it_is():
    assert asked_for() == ([["ONE TWO !"], [" !"], ["GRÖSSE\u2028 SEVEN !"]], [("translate", {}, progress)])
    lines, _ = asked_for("--json")
    assert lines[0] == ['{"text": "one two", "translation": "ONE TWO\\n!", "score": -0.123457}']
    assert "Größe" in lines[2][0]


def test_options_of_the_search_reach_the_translator_under_their_names():
    options = {"prefix": "ein", "max_length": 7, "repetition_penalty": 1.3, "no_repeat_ngram": 0}
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    assert asked_for(*flags)[1] == [("translate", options, progress)]
    request = parse(*EXPORT, *flags, "--beam_size", 3, "--length_penalty", 0.5)
    assert request.options == {**options, "beam_size": 3, "length_penalty": 0.5}
    assert parse(*RUN, "--beam_size", 3, "--length_penalty", 0.5).options == {}  # the translator is loaded with them


def test_n_best_gives_n_lines_of_every_text_best_first_or_a_list_in_its_object():
    lines, asked = asked_for("--n_best", 2)
    assert lines == [[f"{text}0", f"{text}1"] for text in TEXTS]
    assert asked == [("alternatives", {}, progress)] and parse(*RUN, "--n_best", 2).lines_each == 2
    lines, _ = asked_for("--json", "--n_best", 2)
    assert [len(row) for row in lines] == [1, 1, 1] and parse(*RUN, "--json", "--n_best", 2).lines_each == 1
    best, second = {"translation": "one two0", "score": 0.0}, {"translation": "one two1", "score": -0.25}
    assert json.loads(lines[0][0]) == {"text": "one two", **best, "alternatives": [best, second]}


def test_sampling_draws_with_the_options_that_were_given_and_the_sample_that_agrees_best_is_chosen():
    lines, asked = asked_for("--sample", "--temperature", 0.7, "--seed", -5, "--top_k", 0)
    assert lines[0] == ["One Two"] and asked == [("sample", {"temperature": 0.7, "seed": -5, "top_k": 0}, progress)]
    lines, ((_, options, _),) = asked_for("--mbr", "bleu", "--samples", 3, "--seed", 5, "--top_p", 0.5, "--json")
    assert json.loads(lines[0][0]) == {"text": "one two", "translation": "One Two", "score": 100.0}
    assert len(options.pop("seed")) == 3 * len(TEXTS) and options == {"top_p": 0.5}
    request = parse(*RUN, "--mbr", "chrf")
    assert (request.mbr, request.samples, request.sampling) == ("chrf", 64, {})


def test_the_model_of_the_reverse_direction_ranks_as_many_as_are_wanted():
    class Longest(Recorder):
        tags, languages = None, (None, None)

        def between(self, *languages):
            return self

        def score(self, texts, translations, on_progress=None):
            return [SimpleNamespace(score=float(text[-1:] == "2")) for text in texts]

    lines = parse(*RUN, "--reverse", "runs/b", "--n_best", 2).lines(Longest(), ["a"], progress, Longest())
    assert lines == [["a2", "a0"]]
    ((line,),) = parse(*EXPORT, "--reverse", "runs/b", "--json").lines(Longest(), ["a"], progress, Longest())
    assert json.loads(line) == {"text": "a", "translation": "a2", "score": 0.5}


def test_an_explanation_has_pieces_scores_and_alignment_in_short_numbers():
    lines, asked = asked_for("--json", "--explain")
    assert lines[1] == [
        '{"text": "", "translation": "\\n!", "score": -0.123457, "source_pieces": ["▁a", "b"], '
        '"pieces": ["▁ä", "</s>", "x"], "token_scores": [-0.1, -0.2, -0.3], '
        '"alignment": [[0.1, 0.9], [0.3333, 0.6667], [0.0, 1.0]]}'
    ]
    assert [on_progress for *_, on_progress in asked] == [None, progress]  # every text counts once


def test_flags_that_make_no_sense_together_are_refused_by_name():
    for flags, named in (
        ((*RUN, "--sample", "--n_best", 2), "--sample and --n_best"),
        ((*RUN, "--explain"), "--explain needs --json"),
        ((*RUN, "--top_k", 0), "--top_k .* --sample"),
        ((*RUN, "--sample", "--length_penalty", 0), "--length_penalty does not go with --sample: "),
        ((*RUN, "--sample", "--shortlist", 64), "--shortlist does not go with --sample"),
        ((*EXPORT, "--n_best", 2, "--beam_size", 3), "--beam_size does not go with --n_best beside --saved_model"),
        ((*RUN, "--explain", "--json", "--no_repeat_ngram", 2), "--no_repeat_ngram does not go with --explain: "),
        (("--litert", "exports/a", "--n_best", 2), "--n_best does not go with --litert"),
        ((*RUN, "--mbr", "bleu", "--n_best", 2, "--reverse", "b"), "--mbr and --n_best do not go together"),
        ((*RUN, "--reverse", "b", "--prefix", "ein"), "--prefix does not go with --reverse: "),
        ((*RUN, "--samples", 8), "--samples needs --mbr"),
        ((*RUN, "--mbr", "chrf", "--samples", 1), "`samples` must be between 2 and 256. Received: samples=1"),
        ((*RUN, "--n_best", 0), "--n_best must be between 1 and .* n_best=0"),
    ):
        with pytest.raises(UserError, match=named):
            parse(*flags)


def test_a_beam_may_be_given_beside_the_n_best_of_a_run_and_no_more_is_asked_for_than_the_search_keeps():
    assert parse(*RUN, "--reverse", "b", "--n_best", 5, "--beam_size", 5, "--shortlist", 64).n_best == 5
    for name in ("--n_best", "--beam_size"):
        parse(*EXPORT, name, 3).check_width(Recorder())
        with pytest.raises(UserError, match=f"{name} must be at most .* 3. Received: 4"):
            parse(*EXPORT, name, 4).check_width(Recorder())


def test_given_translations_are_scored_line_by_line():
    recorder = Recorder()
    lines = parse(*RUN, "--score").lines(recorder, ["ab\tx", "\t", "abc\ty z"], progress)
    assert lines == [["-0.666667"], ["0.000000"], ["-1.000000"]] and recorder.asked == [("score", {}, progress)]
    ((line,),) = parse(*RUN, "--score", "--json").lines(recorder, ["ab\tx"], progress)
    described = {"text": "ab", "translation": "x", "score": -0.666667}
    assert json.loads(line) == described | {"pieces": ["x", "</s>"], "token_scores": [-0.1, -0.2]}
    for line in ("", "one two", "one\tzwei\tdrei"):
        received = re.escape(repr(line))
        with pytest.raises(UserError, match=f"a tab and its translation on every line. Received: {received}"):
            parse(*RUN, "--score").lines(recorder, ["ab\tx", line])
