"""The model card of an export: README.md, in the form that hubs of models read. Its facts are those of export.json."""

import json
import re

import yaml

CARD = "README.md"
NO_SCORE = "The run has no score of these weights in this direction."
METRICS = {"bleu": "BLEU", "chrf": "chrF"}
LIBRARIES = {"hugging_face": "transformers"}

# How to run each format, from the directory of the card.
RUN = {
    "saved_model": """```python
import tensorflow as tf
import tensorflow_text  # it has the operations of the tokenizer

translate = tf.saved_model.load("{place}").signatures["serving_default"]
print(translate(text=tf.constant([{quoted}]){languages})["translation"][0].numpy().decode())
```

TensorFlow Serving loads the directory above it{flag}. A request is `{{"instances": [{instance}]}}`.""",
    "ctranslate2": """```python
import ctranslate2, sentencepiece

source, target = (sentencepiece.SentencePieceProcessor(model_file=name) for name in {tokenizers})
pieces = {pieces}
found = ctranslate2.Translator("{place}").translate_batch([pieces]{prefix})[0].hypotheses[0]
print(target.decode(found{after_prefix}))
```""",
    "litert": """```bash
echo {quoted} | python {place}/translate_litert.py
```""",
    "argos": """```bash
python -c 'import argostranslate.package as argos; argos.install_from_path("{place}/{package}")'
argos-translate --from-lang {codes[0]} --to-lang {codes[1]} {quoted}
```""",
    "hugging_face": """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("{place}"), AutoModelForSeq2SeqLM.from_pretrained("{place}")
found = model.generate(**tokenizer({typed}, return_tensors="pt"))
print(tokenizer.decode(found[0], skip_special_tokens=True))
```""",
}


def write_card(directory, manifest):
    """Writes README.md into the directory of an export.

    Args:
        directory: pathlib.Path.
        manifest: dict, the content of export.json.
    """
    (directory / CARD).write_text(card_of(manifest), encoding="utf-8")


def card_of(manifest):
    """The model card of an export, a str in Markdown, with YAML for hubs of models before it."""
    run, evaluation = manifest["run"], manifest["run"].get("evaluation")
    parts = [front_matter(manifest), introduction(manifest)]
    parts.append(f"## Scores\n\n{scores({evaluation['set']: evaluation}) if evaluation else NO_SCORE}")
    if evaluation and not is_of_these_weights(manifest):
        beam = f" and a beam of {evaluation['beam_size']}" * ("beam_size" in evaluation)
        parts.append(f"Scored with weights in float32{beam}, and all pieces.")
    if run.get("examples"):
        of = "Texts" if is_imported(manifest) else "Sentences of the validation set"
        parts.append(f"## Examples\n\n{of}, and what the model says:\n\n{examples(run)}")
    if manifest["format"] in RUN:
        parts.append(f"## Run it\n\n{how_to_run(manifest)}")
    parts.append(f"## Limits\n\n{limits(manifest)}")
    return "\n\n".join(parts) + "\n"


def is_imported(manifest):
    """Whether the model was trained elsewhere."""
    return manifest["run"].get("corpus", "") is None


def is_of_these_weights(manifest):
    """Whether the score of the run is that of the export: with its weights, and its search if that is inside."""
    evaluation, search = manifest["run"]["evaluation"], manifest.get("search") or {}
    names = ("beam_size", "length_penalty")
    is_same = all(search[name] == evaluation.get(name, search[name]) for name in names if name in search)
    return is_same and manifest["weights"] == "float32" and not manifest.get("shortlist")


def introduction(manifest):
    """The title of a card, and what the model is, in Markdown."""
    settings, size = manifest["run"]["settings"], size_of(manifest)
    name = settings["architecture"]
    languages = [manifest["run"]["source_lang"], manifest["run"]["target_lang"]]
    direction = "" if None in languages else ", {} to {}".format(*languages)
    kind = "Transformer" if name == "transformer" else f"recurrent network ({name})"
    corpora = ", ".join(f"`{corpus}`" for corpus in corpora_of(manifest))
    origin = f" of the preset `{settings['preset']}`, trained with keras_transformer on {corpora}"
    several = len(manifest["run"].get("ensemble", ()))
    return (
        f"# Translation{direction}\n\n"
        f"A {kind}{', imported into keras_transformer' if is_imported(manifest) else origin}. "
        f"{f'It is an ensemble: {several} models translate together. ' * bool(several)}"
        f"The format is {manifest['format']}, with weights in {manifest['weights']}: {size / 1e6:.1f} MB."
    )


def size_of(manifest):
    """The bytes of an export."""
    return sum(file["bytes"] for file in manifest["files"].values())


def corpora_of(manifest):
    """The names of the corpora of a run, a list of str."""
    dataset = manifest["run"]["settings"]["dataset"]
    return [dataset] if isinstance(dataset, str) else [*dataset]


def front_matter(manifest):
    """What hubs of models read: language, licence, task and metrics, as YAML between two lines."""
    run, evaluation = manifest["run"], manifest["run"].get("evaluation")
    sides = [side for side in manifest.get("languages", {}).values() if isinstance(side, dict)]
    languages = [run["source_lang"], run["target_lang"], *sorted(code for side in sides for code in side)]
    languages = [*dict.fromkeys(code for code in languages if code)]
    facts = {"language": languages} if languages else {}
    if run.get("license"):
        facts["license"] = run["license"]
    facts |= {
        "pipeline_tag": "translation",
        "library_name": LIBRARIES.get(manifest["format"], "keras_transformer"),
        "metrics": [*METRICS],
    }
    if evaluation and is_of_these_weights(manifest):
        corpus, *_ = corpora_of(manifest)
        metrics = [{"type": key, "name": title, "value": round(evaluation[key], 2)} for key, title in METRICS.items()]
        result = {
            "task": {"type": "translation"},
            "dataset": {"name": corpus, "type": corpus, "split": evaluation["set"]},
            "metrics": metrics,
        }
        facts["model-index"] = [{"name": "-".join(languages) or corpus, "results": [result]}]
    return f"---\n{yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)}---"


def scores(evaluations):
    """A table of scores and, below it, their signatures.

    Args:
        evaluations: dict from the name of a set, or of a system, to a dict with the fields of an `Evaluation`.
    """
    rows = [
        f"| {name} | {found['bleu']:.1f} | {found['chrf']:.1f} | {found['sentences']:,} |"
        for name, found in evaluations.items()
    ]
    *_, last = evaluations.values()
    lines = ["| | BLEU | chrF | sentences |", "|---|---|---|---|", *rows, ""]
    return "\n".join([*lines, f"sacreBLEU: `{last['bleu_signature']}` and `{last['chrf_signature']}`."])


def examples(run):
    """A table of texts and their translations."""
    pairs = ((text.replace("|", "\\|") for text in pair) for pair in run["examples"])
    return "\n".join(["| source | translation |", "|---|---|", *(f"| {' | '.join(pair)} |" for pair in pairs)])


def how_to_run(manifest, place="."):
    """How a user runs an export of this format, in a few lines of Markdown.

    Args:
        manifest: dict, the content of export.json.
        place: str, the directory of the export, from where the card is.
    """
    run = manifest["run"]
    text = (run.get("examples") or [["Hello"]])[0][0]
    quoted = json.dumps(re.sub(r'[\\"$`]', "", text), ensure_ascii=False)  # for a shell, JSON and Python
    tokenizers = sorted(f"{place}/{name}" for name in manifest["files"] if name.endswith("tokenizer.model"))
    before, after, prefix = (manifest.get(name, "").split() for name in ("source_tag", "source_end", "target_prefix"))
    pieces = [str(before)] * bool(before) + [f"source.encode({quoted}, out_type=str)"] + [str(after)] * bool(after)
    codes = (manifest.get("languages") or {}).get("default", ())  # of several: every signature needs a direction
    direction = dict(zip(("source_lang", "target_lang"), codes, strict=False))
    return RUN[manifest["format"]].format(
        place=place,
        flag=", with the flag `--xla_cpu_compilation_enabled=true`" if manifest.get("programs") else "",
        quoted=quoted,
        languages="".join(f', {name}=tf.constant(["{code}"])' for name, code in direction.items()),
        instance=json.dumps({"text": json.loads(quoted), **direction}, ensure_ascii=False) if direction else quoted,
        typed=f"{json.dumps(' '.join([*before, '']))} + {quoted}" if before else quoted,
        tokenizers=tuple(tokenizers * 2)[:2],  # the source is first in the alphabet
        pieces=" + ".join(pieces),
        prefix=f", target_prefix=[{prefix}]" if prefix else "",
        after_prefix=f"[{len(prefix)}:]" if prefix else "",
        package=manifest.get("package"),
        codes=manifest.get("codes") or (run["source_lang"], run["target_lang"]),
    )


def limits(manifest):
    """What a model is not good for, in Markdown."""
    seed = "" if is_imported(manifest) else f" The seed of the training was {manifest['run']['settings']['seed']}."
    return (
        "- Text unlike its training text, other languages, and rare words: it may invent, repeat or leave out.\n"
        "- Names, numbers and units can be wrong. Have a person read what matters.\n"
        f"- A line or a sentence is translated without what stands around it.{seed}"
    )
