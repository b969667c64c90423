"""Exports runs for transformers, which then must translate as they do, and as the engines of imported models did.

Needs torch and transformers beside the packages of the project, which PYTHONPATH may name.

python -m tests.on_transformers
python -m tests.on_transformers RUN FILE  # of a run of your own, on the first 200 lines of a file
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.versions import export_version
from keras_transformer.runs import Run
from keras_transformer.tools.engines.hugging_face import HuggingFaceExport
from keras_transformer.tools.importing import import_model
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.tools.importing.toy_corpus import pairs

FIXTURES = Path(__file__).parent / "tools" / "importing"
SOURCES, TARGETS = map(list, zip(*tiny.learned_pairs(), strict=True))
BIASED = {"attention_bias": True, "num_decoder_layers": 2}
PRE_NORM = {**BIASED, "pre_norm": True}
VARIANTS = {
    "the paper's": {**BIASED, "tie_embeddings": False, "activation": "gelu_sigmoid"},
    "M2M-100's": {**PRE_NORM, "positions": "sinusoidal_tensor2tensor", "first_position": 1},
    "mBART's": {**PRE_NORM, "positions": "learned", "num_positions": 7, "tie_positions": False, "embedding_norm": True},
}
VARIANTS["mBART's"] |= {"logits_bias": True, "frame": "/3,5/", "scale_embeddings": False, "activation": "gelu_tanh"}


def main():
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("SHARED_BY_TESTS", directory)
        if sys.argv[1:]:
            run, file = sys.argv[1:]
            texts = Path(file).read_text("utf-8").splitlines()[:200]
            translator = Run(run).translator(length_penalty=0.0, split_sentences=False)
            check_beam_search(Path(directory), translator, texts)
            return check_back(Path(directory), translator, texts)
        for name, variant in VARIANTS.items():
            translator = Translator(tiny.transformer(**variant), tiny.tokenizer(), max_length=31)
            path = export_version(HuggingFaceExport(translator), Path(directory, name), sentences=SOURCES)
            print(f"in transformers, with random weights as {name}: {proven(path)}")
            again = import_model(path, Path(directory, f"{name} again"), "en", "de").translator()
            scores, expected = ([row[0] for row in each.score(SOURCES, TARGETS)] for each in (again, translator))
            np.testing.assert_allclose(scores, expected, rtol=1e-5)
            print(f"in transformers and back, with random weights as {name}: {len(scores)} scores equal")
        translator = Translator(tiny.trained_transformer(), tiny.tokenizer(), max_length=31, length_penalty=0.0)
        found = check_beam_search(Path(directory), translator, SOURCES)
        assert sum(found == target for found, target in zip(found, TARGETS, strict=True)) >= 0.9 * len(TARGETS)
        check_back(Path(directory), translator, SOURCES)
        check_imported(("hf_marian", "hf_m2m100", "hf_nllb", "hf_mbart"), Path(directory))
        check_by_ctranslate2(("hf_marian", "hf_m2m100"), Path(directory))


def proven(path):
    """The proof of an export, in words. `export_version` raises if the two differ."""
    parity = read_manifest(path)["parity"]
    return f"{parity['equal']} of {parity['sentences']} equal, scores within {parity['largest_score_difference']:.1e}"


def check_beam_search(directory, translator, texts):
    """`generate`, without any argument, finds with its beam what the run finds: a list of str."""
    path = export_version(HuggingFaceExport(translator), directory / "trained", sentences=texts)
    (found,), expected = generated({path: texts}), translator.translate(texts)
    different = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    print(f"in transformers, a trained model: greedy search {proven(path)}")
    print(f"in transformers, a beam of 4: {len(texts) - len(different)} of {len(texts)} equal")
    assert len(different) <= 0.01 * len(texts), different
    return found


def check_back(directory, translator, texts):
    """What `check_beam_search` has exported is imported as a run, which translates as before."""
    languages = translator.languages if all(translator.languages) else ("en", "de")
    again = import_model(directory / "trained" / "1", directory / "again", *languages)
    found = again.translator(length_penalty=0.0, split_sentences=False).translate(texts)
    assert found == translator.translate(texts)
    print(f"in transformers and back: {len(found)} of {len(texts)} equal")


def generated(texts):
    """What transformers makes of the texts of each export, path -> list of str, in a process without TensorFlow."""
    code = (
        "import json, sys; from transformers import AutoModelForSeq2SeqLM as M, AutoTokenizer as T\n"
        "for path, texts in json.load(sys.stdin).items():\n"
        "    t, m = T.from_pretrained(path), M.from_pretrained(path)\n"
        "    found = (m.generate(**t(x, return_tensors='pt'))[0] for x in texts)\n"
        "    print(json.dumps([t.decode(y, skip_special_tokens=True) for y in found]))"
    )
    command, given = [sys.executable, "-c", code], json.dumps({str(path): each for path, each in texts.items()})
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_imported(names, directory):
    """Models that transformers has trained go out again: they translate as their engine did before they came in."""
    texts, answers = {}, []
    for name in names:
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
            archive.extractall(directory, filter="data")
        expected = json.loads((directory / name / "expected.json").read_text())[0]
        codes = expected["source_lang"], expected["target_lang"]
        run = import_model(directory / name, directory / f"{name}_run", *codes)
        path = run.export(directory / f"{name}_out", format="hugging_face", beam_size=4, length_penalty=0.0)
        print(f"in transformers, {name} out again: {proven(path)}")
        more = [source for source, _ in pairs(23, 7)] if name == "hf_marian" else []  # it never predicts some pieces
        texts[path] = [*more, *(row["source"] for row in expected["rows"])]
        found = run.translator(length_penalty=0.0, split_sentences=False).translate(more)
        answers.append([*found, *(row["beam"]["text"] for row in expected["rows"])])
    assert generated(texts) == answers


def check_by_ctranslate2(names, directory):
    """What CTranslate2 makes of such models comes in as well: no file names the tokens that their tokenizers add."""
    code = (
        "import os, sys; from ctranslate2.converters import TransformersConverter as T\n"
        "pieces = lambda path: [name for name in os.listdir(path) if name.endswith(('.spm', '.model'))]\n"
        "for path in sys.argv[1:]: T(path, copy_files=pieces(path)).convert(path + '_converted')"
    )
    subprocess.run([sys.executable, "-c", code, *(directory / name for name in names)], capture_output=True, check=True)
    for name in names:
        expected = json.loads((directory / name / "expected.json").read_text())[0]
        languages = expected["source_lang"], expected["target_lang"]
        run = import_model(directory / f"{name}_converted", directory / f"{name}_again", *languages)
        sources, targets = zip(*((row["source"], row["greedy"]["text"]) for row in expected["rows"]), strict=True)
        assert run.translator(beam_size=1, length_penalty=0.0).translate(sources) == [*targets]
        print(f"in transformers, {name} through CTranslate2: all {len(targets)} equal")


if __name__ == "__main__":
    main()
