"""The report of one or two systems: one HTML file that needs no network."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sacrebleu.metrics import BLEU, CHRF

from keras_transformer.errors import counted
from keras_transformer.files import write_whole
from keras_transformer.tools import page_of
from keras_transformer.tools.comparison.measures import (
    FAULTS,
    faults_of,
    frequency_name,
    length_groups,
    recall_by_frequency,
    training_words,
    words_in,
)
from keras_transformer.tools.comparison.sentences import lists_of, marked, sentence_scores
from keras_transformer.tools.comparison.significance import Interval


@dataclass(frozen=True)
class System:
    """A system of a report.

    Attributes:
        name: str, such as the path of a run.
        translations: sequence of str.
        comet: float, its COMET; None if it is not known.
    """

    name: str
    translations: Sequence[str]
    comet: float | None = None


@dataclass(frozen=True)
class Task:
    """What the systems of a report translate.

    Attributes:
        references: sequence of sequences of str, equally many for each sentence.
        sources: sequence of str; None if they are not known.
        bleu: sacreBLEU's BLEU, with the tokenization of the scores that the program prints.
        corpora: mapping from the name of each corpus to its sentences, a sequence of int.
    """

    references: Sequence[Sequence[str]]
    sources: Sequence[str] | None
    bleu: BLEU
    corpora: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def score(self, translations, rows):
        """sacreBLEU's BLEUScore of some sentences: `rows`, a sequence of int."""
        columns = [list(column) for column in zip(*(self.references[row] for row in rows), strict=True)]
        return self.bleu.corpus_score([translations[row] for row in rows], columns)


def write_report(path, systems: Sequence[System], task: Task, scores, printed="", model_dir=None, comet="") -> None:
    """Writes the report.

    Args:
        path: of the HTML file.
        systems: one or two `System`; the second is the baseline.
        task: Task.
        scores: sequence of `Interval` of one system, or of `Comparison` of two.
        printed: str, what the program has printed.
        model_dir: path of the run whose training corpus tells the frequency of words; None takes the references.
        comet: str, the name of the model of COMET.

    Raises:
        FileError: if the file cannot be written.
    """
    text = page_of(__package__, report_data(systems, task, scores, printed, model_dir, comet))
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def report_data(systems, task, scores, printed="", model_dir=None, comet="") -> dict:
    """What the page shows: a dict as JSON can hold it. The arguments are those of `write_report`."""
    names = [system.name for system in systems]
    sentences = counted(len(task.references), "sentence")
    in_order = task.sources or [row[0] for row in task.references]
    chrf = [sentence_scores(system.translations, task.references) for system in systems]
    sources = task.sources or [None] * len(in_order)
    faults = [list(map(faults_of, system.translations, task.references, sources)) for system in systems]
    lists = lists_of(chrf, faults)
    shown = sorted({row for _, rows in lists for row in rows})
    return {
        "title": " against ".join(names),
        "about": f"{sentences}, {counted(len(task.references[0]), 'reference')} each",
        "names": names,
        "scores": [*map(_score, scores), *_comet_score(systems, comet), _exact_score(systems, task)],
        "corpora": _by_group(systems, task, task.corpora.items()),
        "lengths": _by_group(systems, task, length_groups([len(words_in(text)) for text in in_order])),
        "length_of": "the source" if task.sources else "the reference",
        "precisions": _precisions(systems, task),
        **_by_frequency(systems, task, model_dir),
        "faults": [
            {"name": name, "meaning": meaning, "counts": [sum(name in kinds for kinds in of) for of in faults]}
            for name, meaning in FAULTS.items()
            if task.sources or name != "left as the source"
        ],
        "lists": [{"name": name, "rows": rows} for name, rows in lists],
        "sentences": {row: _sentence(row, systems, task, chrf) for row in shown},
        "printed": printed,
    }


def _score(found: Interval) -> dict:
    """A score as the program prints it, and the ends of its interval."""
    results = [found.system] + ([found.baseline] if hasattr(found, "baseline") else [])
    return {
        "metric": found.metric,
        "signature": found.signature,
        "p": f"{found.p_value:.3f}" if len(results) == 2 else None,
        "is_significant": len(results) == 2 and found.p_value < 0.05,
        "systems": [
            {
                "score": f"{result.score:.1f}",
                "interval": f"{result.mean:.1f} ± {result.ci:.1f}",
                "range": [float(result.mean - result.ci), float(result.mean + result.ci)],
            }
            for result in results
        ],
    }


def _comet_score(systems, model) -> list[dict]:
    if any(system.comet is None for system in systems):
        return []
    return [_plain_score("COMET", model, [f"{system.comet:.4f}" for system in systems])]


def _exact_score(systems, task) -> dict:
    shares = [_exact(system, task, range(len(task.references))) for system in systems]
    return _plain_score("exact", "", [f"{share:.1%}" for share in shares])


def _plain_score(metric, signature, texts) -> dict:
    """A score without an interval."""
    rows = [{"score": text, "interval": "", "range": None} for text in texts]
    return {"metric": metric, "signature": signature, "p": None, "is_significant": False, "systems": rows}


def _exact(system, task, rows) -> float:
    """The share of some sentences whose translation equals a reference."""
    return sum(system.translations[row] in task.references[row] for row in rows) / len(rows)


def _by_group(systems, task, groups) -> list[dict]:
    """BLEU and the share of exact translations of each group of sentences: a name and a sequence of int."""
    found = []
    for name, rows in groups:
        bleu = [task.score(system.translations, rows).score for system in systems]
        exact = [_exact(system, task, rows) for system in systems]
        found.append({"name": name, "size": len(rows), "bleu": bleu, "exact": exact})
    return found


def _precisions(systems, task) -> list[dict]:
    """Of each system, the precision of runs of 1, 2, 3 and 4 words, and the length beside that of the references."""
    found = [task.score(system.translations, range(len(task.references))) for system in systems]
    return [
        {
            "precisions": score.precisions,
            "length": f"{score.sys_len:,} words for {score.ref_len:,} of a reference, brevity penalty {score.bp:.3f}",
        }
        for score in found
    ]


def _by_frequency(systems, task, model_dir) -> dict:
    """The recall of words by their frequency, and the corpus that tells the frequency."""
    if found := training_words(model_dir) if model_dir else None:
        counts, of = found[0], f"{counted(found[1], 'sentence')} of the training corpus of {model_dir}"
    else:
        counts = Counter(word for row in task.references for text in row for word in words_in(text))
        of = "the references, because no training corpus is known"
    found = [recall_by_frequency(system.translations, task.references, counts) for system in systems]
    groups = [
        {
            "name": frequency_name(group),
            "size": size,
            "recall": [of_system[group][1] / size for of_system in found],
        }
        for group, (size, _) in found[0].items()
    ]
    return {"frequencies": groups, "frequency_in": of}


def _sentence(row, systems, task, chrf) -> dict:
    """A sentence with the words marked by which two systems differ, or one system and its reference."""
    references, texts = task.references[row], [system.translations[row] for system in systems]
    if len(texts) == 2:
        shown = [marked(text, other, references) for text, other in zip(texts, reversed(texts), strict=True)]
        shown_references = [[(reference, 0)] for reference in references]
    else:
        closest = max(references, key=lambda reference: CHRF().sentence_score(texts[0], [reference]).score)
        shown = [marked(texts[0], closest, references)]
        shown_references = [marked(reference, texts[0], texts) for reference in references]
    return {
        "source": task.sources[row] if task.sources else None,
        "references": shown_references,
        "systems": [{"text": text, "chrf": f"{scores[row]:.1f}"} for text, scores in zip(shown, chrf, strict=True)],
    }
