"""Makes the fixtures of Marian's own files, by Marian itself: run by hand, in an environment of its own.

    python3 -m venv marian && marian/bin/pip install pymarian==1.12.42 sentencepiece
    marian/bin/python tests/tools/importing/make_marian_fixtures.py

Each fixture is a directory as OPUS-MT's releases have: model.npz, decoder.yml, the vocabulary, source.spm, target.spm.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import pymarian
import sentencepiece
from toy_corpus import SENTENCES, pairs, pieces_of, train_pieces

HERE = Path(__file__).parent
SIZES = {"type": "transformer", "dim_emb": 32, "transformer_dim_ffn": 48, "transformer_heads": 4}
SIZES |= {"enc_depth": 2, "dec_depth": 2}
TRAINING = {"after_batches": 600, "mini_batch": 32, "learn_rate": 0.003, "lr_warmup": 60, "seed": 5, "cpu_threads": 1}
TRAINING |= {"overwrite": True, "quiet": True, "disp_freq": 100, "workspace": 256, "max_length": 60, "clip_norm": 1.0}
MODELS = {
    "marian": {
        "tied_embeddings_all": True,
        "transformer_ffn_activation": "swish",
        "transformer_postprocess": "dan",
    },
    "marian_two_vocabularies": {
        "tied_embeddings": True,
        "transformer_ffn_activation": "relu",
        "transformer_postprocess": "dan",
    },
}


def write_vocabulary(path, pieces):
    """Writes pieces as Marian's YAML, with eos 0 and unk 1."""
    names = ["</s>", "<unk>", *pieces]
    path.write_text("".join(f"{json.dumps(name, ensure_ascii=False)}: {i}\n" for i, name in enumerate(names)))


def found(path, sources, beam_size):
    """What Marian finds: a list of (pieces, log-probability) for sources, a list of pieces joined by spaces."""
    settings = {"models": [str(path / "model.npz")], "vocabs": vocabularies(path), "beam_size": beam_size}
    settings |= {"normalize": 0, "n_best": True, "quiet": True, "cpu_threads": 1, "max_length_factor": 5}
    lines = pymarian.Translator(**settings, **{"mini_batch": 1}).translate(sources)
    best = {}
    for line in "\n".join(lines if isinstance(lines, list) else [lines]).splitlines():
        number, pieces, *_, score = (part.strip() for part in line.split("|||"))
        best.setdefault(int(number), (pieces.split(), float(score)))
    return list(best.values())


def vocabularies(path):
    return [str(path / name) for name in ("source.yml", "target.yml")]


def make(name, **settings):
    """Writes the fixture NAME.tar.xz."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.mkdir()
        corpus, texts = pairs(600, seed=1), []
        for side, sentences in zip(("source", "target"), zip(*corpus, strict=True), strict=True):
            train_pieces(path / f"{side}.spm", sentences, 90)
            pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / f"{side}.spm"))
            texts.append(Path(directory, side))
            texts[-1].write_text("".join(" ".join(pieces.encode(s, out_type=str)) + "\n" for s in sentences))
        known = [pieces_of(path / f"{side}.spm")[3:] for side in ("source", "target")]
        both = [*dict.fromkeys(known[0] + known[1])]
        is_shared = "tied_embeddings_all" in settings
        for side, own in zip(("source", "target"), known, strict=True):
            write_vocabulary(path / f"{side}.yml", both if is_shared else own)
        training = {**SIZES, **TRAINING, **settings, "vocabs": vocabularies(path), "train_sets": [*map(str, texts)]}
        pymarian.Trainer(model=str(path / "model.npz"), **training).train()
        for left_over in path.glob("model.npz.*"):
            left_over.unlink()
        decoder = "models:\n  - model.npz\nvocabs:\n  - source.yml\n  - target.yml\nbeam-size: 6\nnormalize: 1\n"
        (path / "decoder.yml").write_text(decoder)
        source, target = (
            sentencepiece.SentencePieceProcessor(model_file=str(path / f"{side}.spm")) for side in ("source", "target")
        )
        sentences = [sentence for sentence in SENTENCES if sentence != "one"]  # so short that a limit cuts it off
        sources = [" ".join(source.encode(sentence, out_type=str)) for sentence in sentences]
        rows = [{"source": sentence} for sentence in sentences]
        for search, beam_size in (("greedy", 1), ("beam", 4)):
            for row, (pieces, score) in zip(rows, found(path, sources, beam_size), strict=True):
                row[search] = {"text": target.decode(pieces), "log_prob": score}
                print(search, row[search])
        expected = [{"source_lang": None, "target_lang": None, "rows": rows}]
        (path / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1), encoding="utf-8")
        with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as archive:
            archive.add(path, name)
        print(name, (HERE / f"{name}.tar.xz").stat().st_size, "bytes")


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name, **MODELS[name])
