"""Trains Marian, OpenNMT-tf or JoeyNMT on a corpus for some processor time, and scores what it then translates.

    python3.10 -m venv peer && peer/bin/pip install OpenNMT-tf==2.32.0 'tensorflow==2.11.*' 'numpy<1.24'
    python3 -m venv peer && peer/bin/pip install pymarian==1.12.42
    python3 -m venv peer && peer/bin/pip install joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0
    taskset -c 0 python -m benchmarks.peers opennmt_tf --python peer/bin/python --corpus DIR \\
        --source_lang en --target_lang de --output runs/opennmt_tf --minutes 40

All peers read the same 8,000 pieces of SentencePiece (BPE, joint), and have the shape of --preset tiny, one matrix of
embeddings, dropout .1, label smoothing .1, and batches of about 4,096 tokens. The files beside this one say the rest:
each is the peer's own documented recipe, with a warm-up that fits a small corpus. A peer saves a checkpoint every 100
updates (JoeyNMT: 500), and is stopped when its minutes are over, or after 3,540 updates. Then it translates val and
test with a beam of 4 from the last one. The same command again goes on from there. The search of Marian 1.12 makes
nonsense of models whose layers normalize first (docs/import.md). So such a model is imported, and translated here.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import sentencepiece
import yaml

from keras_transformer.evaluation import measure

HERE = Path(__file__).parent.absolute()
ROOT = HERE.parents[1]
VOCABULARY = 8000
SETS = ("train", "val", "test")
TRANSLATED = ("val", "test")
SPECIAL = ("<unk>", "<pad>", "<s>", "</s>")  # with their numbers
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
OPENNMT = f"-m opennmt.bin.main --model {HERE}/opennmt_tf_model.py --config {HERE}/opennmt_tf.yaml --auto_config"
MARIAN = "-c 'import sys, _pymarian; sys.exit(_pymarian.main(sys.argv[1:]))'"
TRAINING = {
    "opennmt_tf": f"{OPENNMT} train",
    "marian": f"{MARIAN} train --config {HERE}/marian.yaml",
    "joeynmt": f"-m joeynmt train --skip-test {HERE}/joeynmt.yaml",
}
TRANSLATION = {
    "opennmt_tf": f"{OPENNMT} infer --features_file {{name}}.source --predictions_file {{name}}.answer",
    "joeynmt": f"-m joeynmt translate {HERE}/joeynmt.yaml < {{name}}.source > {{name}}.answer",
}
IMPORT = (
    "-m keras_transformer import {output}/model --source_lang {source} --target_lang {target} --model_dir {output}/run"
)
OURS = "-m keras_transformer translate --model_dir {output}/run --input {text} --output {output}/{name}.answer"
DECODER = "models: [model.npz]\nvocabs: [vocab.yml, vocab.yml]\n"  # what Marian calls decoder.yml


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=TRAINING)
    parser.add_argument("--python", type=Path, required=True, help="the Python of the environment that has the peer")
    parser.add_argument("--corpus", type=Path, required=True, help="directory with train.en, val.en, test.en, ...")
    parser.add_argument("--source_lang", required=True)
    parser.add_argument("--target_lang", required=True)
    parser.add_argument("--output", type=Path, required=True, help="new directory of the peer's files")
    parser.add_argument("--minutes", type=float, default=40, help="processor minutes of the training")
    arguments = parser.parse_args()
    names = [f"{name}.{code}" for name in SETS for code in (arguments.source_lang, arguments.target_lang)]
    for path in [arguments.python, *(arguments.corpus / name for name in names)]:
        if not path.is_file():
            parser.error(f"there is no file {path}")
    return arguments


def prepare(corpus, languages, output, as_text):
    """Writes the corpus, as text or as pieces, and the vocabulary in the form of each peer."""
    (output / "model").mkdir(parents=True, exist_ok=True)
    texts = {
        (name, side): (corpus / f"{name}.{language}").read_text("utf-8").splitlines()
        for name in SETS
        for side, language in zip(("source", "target"), languages, strict=True)
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts["train", "source"] + texts["train", "target"]),
        model_prefix=str(output / "pieces"),
        vocab_size=VOCABULARY,
        hard_vocab_limit=False,
        model_type="bpe",
        character_coverage=1.0,
        **{f"{name}_id": number for number, name in enumerate(("unk", "pad", "bos", "eos"))},
        minloglevel=2,
    )
    model = read_pieces(output)
    for (name, side), lines in texts.items():
        written = lines if as_text else [" ".join(model.encode(line, out_type=str)) for line in lines]
        write_lines(output / f"{name}.{side}", written)
    pieces = [model.id_to_piece(number) for number in range(len(SPECIAL), model.get_piece_size())]
    write_lines(output / "pieces.joeynmt", [*SPECIAL, *pieces])
    write_lines(output / "pieces.opennmt_tf", ["<blank>", "<s>", "</s>", *pieces])
    of_marian = {piece: number for number, piece in enumerate(["</s>", "<unk>", *pieces])}
    (output / "pieces.marian.yml").write_text(yaml.safe_dump(of_marian, allow_unicode=True, sort_keys=False), "utf-8")


def read_pieces(output):
    return sentencepiece.SentencePieceProcessor(model_file=str(output / "pieces.model"))


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def run(python, command, output, seconds=None):
    """Runs a peer in its directory, for at most ``seconds`` of processor time, and ends if it fails."""

    def limit():
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    command = f"exec {python.absolute()} {command}"
    status = subprocess.run(command, shell=True, cwd=output, env=environment, preexec_fn=limit).returncode
    if status not in (0, -signal.SIGKILL if seconds else 0):
        raise SystemExit(f"The peer ended with {status}. What it printed says why.")


def translations(arguments, name):
    """What a peer makes of val or test, a list of str."""
    peer, output = arguments.peer, arguments.output.absolute()
    if peer == "marian":
        text = (arguments.corpus / f"{name}.{arguments.source_lang}").absolute()
        run(Path(sys.executable), OURS.format(output=output, text=text, name=name), ROOT)
    else:
        run(arguments.python, TRANSLATION[peer].format(name=name), output)
    answers = (output / f"{name}.answer").read_text("utf-8").splitlines()
    return [read_pieces(output).decode(answer.split()) for answer in answers] if peer == "opennmt_tf" else answers


def import_marian(arguments):
    """Makes a run of the model that Marian has trained."""
    output = arguments.output.absolute()
    shutil.rmtree(output / "run", ignore_errors=True)
    for name, made_of in {
        "source.spm": "pieces.model",
        "target.spm": "pieces.model",
        "vocab.yml": "pieces.marian.yml",
    }.items():
        shutil.copy(output / made_of, output / "model" / name)
    (output / "model" / "decoder.yml").write_text(DECODER, "utf-8")
    codes = {"source": arguments.source_lang, "target": arguments.target_lang}
    run(Path(sys.executable), IMPORT.format(output=output, **codes), ROOT)


def main():
    arguments = parse_arguments()
    peer, output = arguments.peer, arguments.output
    languages = (arguments.source_lang, arguments.target_lang)
    if not (output / "pieces.marian.yml").exists():  # the last file of it
        prepare(arguments.corpus, languages, output, as_text=peer == "joeynmt")
    run(arguments.python, TRAINING[peer], output, round(60 * arguments.minutes))
    if peer == "marian":
        import_marian(arguments)
    for name in TRANSLATED:
        texts = translations(arguments, name)
        write_lines(output / f"{name}.text", texts)
        references = (arguments.corpus / f"{name}.{languages[1]}").read_text("utf-8").splitlines()
        found = measure(texts, references, target_lang=languages[1])  # 13a finds no words in Japanese
        print(f"{peer} {name}: BLEU = {found.bleu:.2f} {found.bleu_signature}")
        print(f"{peer} {name}: chrF2 = {found.chrf:.2f} {found.chrf_signature}")


if __name__ == "__main__":
    main()
