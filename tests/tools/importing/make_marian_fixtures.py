"""Makes the fixtures of Marian's own files, by Marian itself: run by hand, in an environment of its own.

    python3 -m venv marian && marian/bin/pip install pymarian==1.12.42 sentencepiece numpy
    marian/bin/python tests/tools/importing/make_marian_fixtures.py

Each fixture is a directory as OPUS-MT's releases have: model.npz, decoder.yml, the vocabulary, source.spm, target.spm.
With `spm`, the SentencePiece models are the vocabularies themselves, as Marian makes them: eos 0, unk 1.

A pre-norm model is searched with the newer layers of Marian. Its older ones forget, in a search alone, to normalise the
keys and values of the target, and give other probabilities than in training.
"""

import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pymarian
import sentencepiece
from toy_corpus import SENTENCES, pack, pairs, pieces_of, train_pieces

SIDES = "source", "target"
SIZES = {"type": "transformer", "dim_emb": 32, "transformer_dim_ffn": 48, "transformer_heads": 4}
SIZES |= {"enc_depth": 2, "dec_depth": 2}
TRAINING = {"after_batches": 600, "mini_batch": 32, "learn_rate": 0.003, "lr_warmup": 60, "seed": 5, "cpu_threads": 1}
TRAINING |= {"overwrite": True, "quiet": True, "disp_freq": 100, "workspace": 256, "max_length": 60, "clip_norm": 1.0}
RELU = {"transformer_ffn_activation": "relu"}
DAN = {"transformer_postprocess": "dan"}
SHARED_SPM = {"spm": True, "tied_embeddings_all": True, **RELU}
PRE_NORM = {"transformer_preprocess": "n", "transformer_postprocess": "da", "transformer_postprocess_top": "n"}
MODELS = {
    "marian": {"tied_embeddings_all": True, "transformer_ffn_activation": "swish", **DAN},
    "marian_two_vocabularies": {"tied_embeddings": True, **RELU, **DAN},
    "marian_spm": {"spm": True, "tied_embeddings": True, "transformer_ffn_activation": "gelu"},
    "marian_pre_norm": {**SHARED_SPM, **PRE_NORM},
    "marian_ssru": {**SHARED_SPM, **DAN, "transformer_decoder_autoreg": "rnn", "dec_cell": "ssru"},
}
MODELS["marian_spm"]["transformer_postprocess_emb"] = "nd"
IDS = {"eos_id": 0, "unk_id": 1, "bos_id": -1}


def write_yaml_vocabularies(path, is_shared):
    """Writes source.yml and target.yml, with eos 0 and unk 1, for the pieces of source.spm and target.spm."""
    known = [pieces_of(path / f"{side}.spm")[3:] for side in SIDES]
    both = [*dict.fromkeys(known[0] + known[1])]
    for side, own in zip(SIDES, known, strict=True):
        names = ["</s>", "<unk>", *(both if is_shared else own)]
        lines = [f"{json.dumps(name, ensure_ascii=False)}: {i}\n" for i, name in enumerate(names)]
        (path / f"{side}.yml").write_text("".join(lines))


def name_in_new_layers(name):
    """The name of a weight of a norm that stands before its part, or behind a stack, in the newer layers of Marian."""
    side, place, rest = name.split("_", 2)
    part, stack = ("weight" if "scale" in rest else "bias"), side.capitalize()
    start = f"TransformerBatch{stack}->{side}"
    if place == "top":
        return f"{start}->postprocessor->norm->{part}"
    kind, _, _ = rest.partition("_")
    blocks = {"self": "selfAttentionBlock", "context": "crossAttentionBlock", "ffn": "filterBlock"}
    block = "autoRegressiveBlock" if (side, kind) == ("decoder", "self") else blocks[kind]
    layer = f"Transformer{stack}Layer{'WithCrossAttention' if side == 'decoder' else ''}"
    return f"{start}->layers->at({int(place[1:]) - 1})->as<marian::nn::{layer}>()->{block}->preprocessor->norm->{part}"


def write_for_new_layers(path):
    """Writes model.new.npz, which the newer layers of Marian can read, beside model.npz."""
    with np.load(path / "model.npz") as arrays:
        renamed = {
            name_in_new_layers(name) if name.endswith("_pre") or "_top_" in name else name: array
            for name, array in arrays.items()
        }
    flat = {name: array.reshape(-1) if "->" in name else array for name, array in renamed.items()}
    np.savez(path / "model.new.npz", **flat)
    os.environ["TRANSFORMER_FLAVOR"] = "experimental"


def found(path, sources, beam_size, suffix, model="model.npz"):
    """What Marian finds: a list of (text or pieces, log-probability) for sources, texts or pieces joined by spaces."""
    settings = {"models": [str(path / model)], "vocabs": vocabularies(path, suffix), "beam_size": beam_size}
    settings |= {"normalize": 0, "n_best": True, "quiet": True, "cpu_threads": 1, "max_length_factor": 5}
    lines = pymarian.Translator(**settings, **{"mini_batch": 1}).translate(sources)
    best = {}
    for line in "\n".join(lines if isinstance(lines, list) else [lines]).splitlines():
        number, text, *_, score = (part.strip() for part in line.split("|||"))
        best.setdefault(int(number), (text, float(score)))
    return list(best.values())


def vocabularies(path, suffix):
    return [str(path / f"{side}.{suffix}") for side in SIDES]


def make(name, spm=False, **settings):
    """Writes the fixture NAME.tar.xz."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.mkdir()
        sides, is_shared = [*zip(*pairs(600, seed=1), strict=True)], "tied_embeddings_all" in settings
        for side, sentences in zip(SIDES, sides, strict=True):
            of_pieces = sides[0] + sides[1] if is_shared and spm else sentences
            train_pieces(path / f"{side}.spm", of_pieces, 90, **(IDS if spm else {}))
        pieces = [sentencepiece.SentencePieceProcessor(model_file=str(path / f"{side}.spm")) for side in SIDES]
        divide, decode = [str, str], str  # Marian divides text itself
        if not spm:
            write_yaml_vocabularies(path, is_shared)
            divide, decode = [partial(joined, own) for own in pieces], lambda text: pieces[1].decode(text.split())
        for side, sentences, divided in zip(SIDES, sides, divide, strict=True):
            Path(directory, side).write_text("".join(divided(each) + "\n" for each in sentences), encoding="utf-8")
        suffix = "spm" if spm else "yml"
        files = {"vocabs": vocabularies(path, suffix), "train_sets": [str(Path(directory, side)) for side in SIDES]}
        pymarian.Trainer(model=str(path / "model.npz"), **SIZES, **TRAINING, **settings, **files).train()
        for left_over in path.glob("model.npz.*"):
            left_over.unlink()
        lists = f"models:\n  - model.npz\nvocabs:\n  - source.{suffix}\n  - target.{suffix}\n"
        (path / "decoder.yml").write_text(f"{lists}beam-size: 6\nnormalize: 1\n")
        model = "model.npz"
        if settings.get("transformer_preprocess"):
            write_for_new_layers(path)
            model = "model.new.npz"
        sentences = [sentence for sentence in SENTENCES if sentence != "one"]  # so short that a limit cuts it off
        rows = [{"source": sentence} for sentence in sentences]
        for search, beam_size in (("greedy", 1), ("beam", 4)):
            best = found(path, [*map(divide[0], sentences)], beam_size, suffix, model)
            for row, (text, score) in zip(rows, best, strict=True):
                row[search] = {"text": decode(text), "log_prob": score}
                print(search, row[search])
        (path / "model.new.npz").unlink(missing_ok=True)
        pack(path, [{"source_lang": None, "target_lang": None, "rows": rows}])


def joined(pieces, sentence):
    """The pieces of a sentence with spaces between them."""
    return " ".join(pieces.encode(sentence, out_type=str))


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name, **MODELS[name])
