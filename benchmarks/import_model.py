"""What the import of a model takes, on random weights in the sizes of models that exist.

    python -m benchmarks.import_model                           # the base model of OPUS-MT, and M2M-100 of 418M
    python -m benchmarks.import_model --models nllb-600M

Writes a model as Hugging Face has it (2.5 GB for nllb-600M) into a temporary directory. Then the benchmark imports the
model, loads the run, and translates a sentence of 20 tokens into 20 tokens with beam 4. Each step is a process of its
own. "CPU s" counts the seconds that the processor works for the process. "GB" is the most memory that the process had
in RAM, with the pages of the files that it read: the system can take these back. The table is in Markdown.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

LANGUAGES = {"M2M100Tokenizer": ("en", "de"), "NllbTokenizer": ("eng_Latn", "deu_Latn")}
SIZES = {"d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16}
SIZES |= {"decoder_attention_heads": 16, "scale_embedding": True, "tie_word_embeddings": True}
SMALL = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8}
SMALL |= {"decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
FAIRSEQ = {**SIZES, "model_type": "m2m_100", "activation_function": "relu", "encoder_ffn_dim": 4096}
FAIRSEQ |= {"architectures": ["M2M100ForConditionalGeneration"], "decoder_ffn_dim": 4096, "pad_token_id": 1}
FAIRSEQ |= {"decoder_start_token_id": 2}
OPUS = {**SIZES, **SMALL, "architectures": ["MarianMTModel"], "activation_function": "swish", "eos_token_id": 0}
MODELS = {  # config.json; a vocabulary has some rows that are no pieces
    "opus-base": {**OPUS, "vocab_size": 60_000, "pad_token_id": 59_999, "decoder_start_token_id": 59_999},
    "m2m100-418M": {**FAIRSEQ, "vocab_size": 128_112, "tokenizer_class": "M2M100Tokenizer"},
    "nllb-600M": {**FAIRSEQ, "vocab_size": 256_206, "tokenizer_class": "NllbTokenizer"},
}
MODELS["tiny"] = {
    **MODELS["m2m100-418M"],
    "vocab_size": 300,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 32,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
}
CONTROLS = ["<s>", "<pad>", "</s>", "<unk>"]
TAGS = 108
STEP = """
import json, resource, sys, time
from keras_transformer.cli.console import import_tensorflow
import_tensorflow()
import keras_transformer as kt

def cost():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return [used.ru_utime + used.ru_stime, time.perf_counter(), used.ru_maxrss / 1e6]

costs = [cost()]
translator = kt.load(sys.argv[1])
costs.append(cost())
for _ in range(2):
    translator.translate([sys.argv[2]], max_length=20, beam_size=4)
    costs.append(cost())
print(json.dumps(costs))
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["opus-base", "m2m100-418M"], help="sizes")
    parser.add_argument("--directory", help="where the temporary directory is made; it needs three times the model")
    return parser.parse_args()


def words(count):
    """`count` pieces of letters, each another one."""
    draw, found = random.Random(1), {}
    while len(found) < count:
        found["▁" * draw.randrange(2) + "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))] = 1
    return [*found]


def write_pieces(path, pieces, controls):
    """Writes a SentencePiece model."""
    model = ModelProto()
    for name, kind in controls.items():
        model.pieces.add(piece=name, type=kind)
    for place, name in enumerate(["▁", *"abcdefghijklmnopqrstuvwxyz", *pieces]):
        model.pieces.add(piece=name, score=-5 - place / 1e4)
    model.trainer_spec.vocab_size = len(model.pieces)
    model.normalizer_spec.add_dummy_prefix = True
    path.write_bytes(model.SerializeToString())


def shapes_of(config):
    """The names and shapes of the weights, as Hugging Face saves them: dict."""
    d, f = config["d_model"], config["encoder_ffn_dim"]
    shapes = {"model.shared.weight": (config["vocab_size"], d)}

    def add(name, *shape):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]

    for side, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for number in range(config[f"{side}_layers"]):
            layer = f"model.{side}.layers.{number}"
            for attention in attentions:
                for part in "qkv":
                    add(f"{layer}.{attention}.{part}_proj", d, d)
                add(f"{layer}.{attention}.out_proj", d, d)
                add(f"{layer}.{attention}_layer_norm", d)
            add(f"{layer}.fc1", f, d)
            add(f"{layer}.fc2", d, f)
            add(f"{layer}.final_layer_norm", d)
        if config.get("model_type") == "m2m_100":
            add(f"model.{side}.layer_norm", d)
    return shapes


def write_weights(path, shapes):
    """Writes random weights as .safetensors, one array after the other."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text, draw = json.dumps(header).encode(), np.random.default_rng(1)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            file.write((draw.standard_normal(shape, "float32") * 0.02).tobytes())


def write_model(name, directory):
    """Writes the directory of a model."""
    config = MODELS[name]
    (directory / "config.json").write_text(json.dumps(config))
    count = config["vocab_size"]
    if "tokenizer_class" not in config:  # of OPUS-MT
        pieces = words(count - 3 - 27)
        for side in ("source", "target"):
            write_pieces(directory / f"{side}.spm", pieces, {"<unk>": 2, "<s>": 3, "</s>": 3})
        table = ["</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz", *pieces, "<pad>"]
        (directory / "vocab.json").write_text(json.dumps({piece: id for id, piece in enumerate(table)}))
    else:
        pieces = words(count - TAGS - len(CONTROLS) - 27)
        write_pieces(directory / "sentencepiece.bpe.model", pieces, {"<unk>": 2, "<s>": 3, "</s>": 3})
        first = count - TAGS
        codes = [*LANGUAGES[config["tokenizer_class"]], *(f"l{number:02}" for number in range(TAGS - 2))]
        added = {first + place: {"content": code} for place, code in enumerate(codes)}
        told = {"tokenizer_class": config["tokenizer_class"], "added_tokens_decoder": added}
        (directory / "tokenizer_config.json").write_text(json.dumps(told))
    write_weights(directory / "model.safetensors", shapes_of(config))


def run(*command):
    """Runs a process: what it printed, processor seconds, seconds, and the most GB in RAM."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return printed, used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss / 1e6


def measure(name, directory):
    """Imports, loads and translates: the row of a model, a list of str."""
    model, imported = directory / name, directory / "run"
    model.mkdir()
    write_model(name, model)
    languages = LANGUAGES.get(MODELS[name].get("tokenizer_class"), ())
    flags = [part for each in zip(("--source_lang", "--target_lang"), languages, strict=False) for part in each]
    program = [sys.executable, "-m", "keras_transformer", "import", str(model), "--model_dir", str(imported), *flags]
    _, cpu, seconds, memory = run(*program)
    costs = json.loads(run(sys.executable, "-c", STEP, str(imported), "ab " * 20)[0].splitlines()[-1])
    steps = [np.subtract(after, before)[:2] for before, after in zip(costs, costs[1:], strict=False)]
    size = (model / "model.safetensors").stat().st_size / 1e9
    shown = [f"{size:.2f}", f"{cpu:.0f} / {seconds:.0f}", f"{memory:.1f}"]
    shown += [f"{used:.1f} / {waited:.1f}" for used, waited in steps]
    return [name, *shown, f"{costs[-1][2]:.1f}"]


def main():
    arguments = parse_arguments()
    columns = ["sizes of", "file GB", "import: CPU s / s", "GB", "load: CPU s / s", "first sentence", "next", "GB"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for name in arguments.models:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            print("| " + " | ".join(measure(name, Path(directory))) + " |", flush=True)


if __name__ == "__main__":
    main()
