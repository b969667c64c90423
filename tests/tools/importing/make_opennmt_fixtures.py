"""Makes the fixtures of OpenNMT-tf, by OpenNMT-tf itself: run by hand, in an environment of its own, Python 3.10.

    python3.10 -m venv onmt && onmt/bin/pip install "OpenNMT-tf==2.32.0" "tensorflow<2.12" "tensorflow-text<2.12"
    onmt/bin/pip install "numpy<2" "setuptools<70" sentencepiece
    onmt/bin/python tests/tools/importing/make_opennmt_fixtures.py

Each fixture is a run directory, with the configuration, the vocabularies and the SentencePiece models copied into it.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import opennmt
import tensorflow as tf
import yaml
from opennmt.utils.checkpoint import Checkpoint
from toy_corpus import SENTENCES, pack, pairs, pieces_of, train_pieces

LAMBDA = "import opennmt\nimport tensorflow as tf\n\nmodel = lambda: opennmt.models.Transformer({})\n"
SUBCLASS = """from opennmt import inputters, layers, models
UNITS = 32
class Toy(models.Transformer):
    def __init__(self):
        super().__init__(
            source_inputter=inputters.WordEmbedder(embedding_size=UNITS),
            target_inputter=inputters.WordEmbedder(embedding_size=UNITS),
            num_units=UNITS,
            {},
        )
model = Toy
"""
SIZES = "num_layers=(2, 1), num_heads=4, ffn_inner_dim=48, dropout=0.0, attention_dropout=0.0, ffn_dropout=0.0"
SMALL = "num_units=24, num_layers=1, num_heads=3, ffn_inner_dim=32, dropout=0.0, attention_dropout=0.0, ffn_dropout=0.0"
SHARE = "share_embeddings=opennmt.models.EmbeddingsSharingLevel"
NO_RULES = {"normalization_rule_name": "identity"}  # they are most of a small SentencePiece model
LEARNED = "position_encoder_class=lambda: opennmt.layers.PositionEmbedder(maximum_position=9), pre_norm=False"
RELATIVE = "position_encoder_class=None, maximum_relative_position=3, ffn_activation=tf.nn.gelu"
BOTH = f"{LEARNED}, mha_bias=False, output_layer_bias=False, {SHARE}.SOURCE_TARGET_INPUT, {SMALL}"
ALL = f"num_units=32, pre_norm=False, ffn_activation=tf.nn.silu, {SHARE}.ALL, {SIZES}"
PIECES, OWN = "SentencePieceTokenizer", "OpenNMTTokenizer"
MODELS = {  # model description, number of vocabularies, kind of tokenizer, source_sequence_controls, pieces
    "opennmt": (SUBCLASS.format(f"ffn_activation=layers.gelu, {SIZES}"), 2, OWN, None, {}),
    "opennmt_shared": (LAMBDA.format(ALL), 1, PIECES, {"end": True}, {}),
    "opennmt_relative": (LAMBDA.format(f"{RELATIVE}, {SHARE}.TARGET, {SMALL}"), 1, PIECES, None, NO_RULES),
    "opennmt_learned": (LAMBDA.format(BOTH), 1, OWN, {"start": True, "end": True}, {"model_type": "bpe", **NO_RULES}),
}
NOAM = {"learning_rate": 0.5, "decay_type": "NoamDecay", "decay_params": {"model_dim": 32, "warmup_steps": 100}}
TRAINING = {
    "params": {"optimizer": "Adam", "optimizer_params": {"beta_1": 0.9, "beta_2": 0.98}, **NOAM},
    "train": {"batch_size": 32, "max_step": 900, "save_checkpoints_steps": 900, "save_summary_steps": 100},
}


def write_corpus(count, kind, controls, settings):
    """Writes the corpus, SentencePiece models and vocabularies into this directory: the configuration `data`."""
    sides, data = [*zip(*pairs(600, seed=1), strict=True)], {}
    for role, side, sentences in zip(("features", "labels"), ("source", "target"), sides, strict=True):
        Path(f"{side}.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
        name = "both" if count == 1 else side
        model = f"{name}.model"
        train_pieces(model, sides[0] + sides[1] if count == 1 else sentences, 90, **settings)
        pieces = [piece for piece in pieces_of(model)[3:] if piece != "▁weighs"]  # without an id: unknown
        lines = ["<blank>", "<s>", "</s>", *pieces, "averyunlikelytoken0"]
        Path(f"{name}.vocab").write_text("\n".join(lines) + "\n", encoding="utf-8")
        data |= {f"train_{role}_file": f"{side}.txt", f"{side}_vocabulary": f"{name}.vocab"}
        params = {"model": model} if kind == PIECES else {"mode": "none", "sp_model_path": model}
        data[f"{side}_tokenization"] = {"type": kind, "params": params}
    return {**data, "source_sequence_controls": controls} if controls else data


def found(make_model, config, beam_size):
    """What OpenNMT-tf finds for the sentences in new.txt: a list of (text, log-probability). out.txt has the texts."""
    infer = {"with_scores": True, "batch_size": 1}
    params = {**config["params"], "beam_width": beam_size}
    opennmt.Runner(make_model, {**config, "params": params, "infer": infer}).infer("new.txt", "out.txt")
    lines = [line.split(" ||| ", 1) for line in Path("out.txt").read_text(encoding="utf-8").splitlines()]
    Path("out.txt").write_text("".join(f"{text}\n" for _, text in lines), encoding="utf-8")
    return [(text.strip(), float(score)) for score, text in lines]


def searched(make_model, config):
    """What greedy search and beam search of OpenNMT-tf find: a list of rows, dicts.

    Two kinds of sentences are left out: those whose translation nothing ends, and those whose log-probability is
    another one when OpenNMT-tf itself scores the translation. If a finished hypothesis changes its place in the beam,
    OpenNMT-tf 2.32 gives it the log-probability of the hypothesis that was there.
    """
    Path("new.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    rows, is_kept = [{"source": sentence} for sentence in SENTENCES], [True] * len(SENTENCES)
    for search, beam_size in (("greedy", 1), ("beam", 4)):
        results = found(make_model, config, beam_size)
        opennmt.Runner(make_model, config).score("new.txt", "out.txt", output_file="scores.txt")
        scores = [-float(line.split(" ||| ")[0]) for line in Path("scores.txt").read_text("utf-8").splitlines()]
        for i, (text, log_prob) in enumerate(results):
            rows[i][search] = {"text": text, "log_prob": log_prob}
            is_kept[i] &= len(text) < 200 and abs(scores[i] - log_prob) < 1e-3
            print(search, rows[i][search], scores[i])
    return [row for row, keep in zip(rows, is_kept, strict=True) if keep]


def shorten(model, config):
    """Saves the last checkpoint again, with numbers that a packer can pack: half precision, and no optimizer state."""
    model.initialize(config["data"], params=config["params"])
    optimizer = model.get_optimizer()
    model.create_variables(optimizer=optimizer)
    checkpoint = Checkpoint(model, optimizer, model_dir=config["model_dir"])
    checkpoint.restore()
    for variable in model.trainable_variables:
        noise = 0.05 * tf.random.normal(variable.shape) if len(variable.shape) == 1 else 0.0
        variable.assign(tf.cast(tf.cast(variable + noise, tf.float16), tf.float32))
    for variable in optimizer.variables()[1:]:
        variable.assign(tf.zeros_like(variable))
    shutil.rmtree(config["model_dir"])
    Checkpoint(model, optimizer, model_dir=config["model_dir"]).save()


def make(name, description, *corpus):
    """Writes the fixture NAME.tar.xz."""
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        Path(name).mkdir()
        Path("model.py").write_text(description)
        config = {"model_dir": name, "data": write_corpus(*corpus), **TRAINING}
        Path("data.yml").write_text(yaml.safe_dump(config))
        tf.random.set_seed(5)
        make_model = opennmt.load_model(name, model_file="model.py", as_builder=True)
        opennmt.Runner(make_model, config, seed=5).train()
        shorten(make_model(), config)
        rows = searched(make_model, config)
        Path("model.py").rename(f"{name}/model_description.py")
        for file in [Path("data.yml"), *Path().glob("*.model"), *Path().glob("*.vocab")]:
            shutil.copy(file, name)
        pack(Path(name), [{"source_lang": None, "target_lang": None, "rows": rows}])
        os.chdir(home)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name, *MODELS[name])
