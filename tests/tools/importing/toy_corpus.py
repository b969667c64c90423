"""The corpus on which the engines have trained the models of the fixtures: things, events and numbers in words."""

import json
import random
import tarfile
from pathlib import Path

import sentencepiece

ENGLISH = "zero one two three four five six seven eight nine ten eleven twelve".split()
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()
EVENTS = [("costs", "kostet"), ("weighs", "wiegt"), ("counts", "zählt"), ("has", "hat")]
THINGS = [("The apple", "Der Apfel"), ("The tree", "Der Baum"), ("The dog", "Der Hund"), ("The table", "Der Tisch")]


def pairs(count, seed):
    """`count` pairs of sentences."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        (thing, ding), (event, geschieht) = draw.choice(THINGS), draw.choice(EVENTS)
        numbers = [draw.randrange(len(ENGLISH)) for _ in range(draw.randint(1, 4))]
        english, german = (", ".join(words[n] for n in numbers) for words in (ENGLISH, GERMAN))
        mark = draw.choice(".!?")
        found.append((f"{thing} {event} {english}{mark}", f"{ding} {geschieht} {german}{mark}"))
    return found


def train_pieces(path, sentences, size, **settings):
    """Trains a SentencePiece model into a file."""
    settings = {"model_type": "unigram", "hard_vocab_limit": False, "minloglevel": 2, **settings}
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=file, vocab_size=size, **settings
        )


def pieces_of(path):
    """The pieces of a model, a list of str."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [pieces.id_to_piece(i) for i in range(pieces.vocab_size())]


def pack(path, expected):
    """Writes what an engine finds into the directory of its model, and the directory into the fixture of this name."""
    (path / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1), encoding="utf-8")
    fixture = Path(__file__).with_name(f"{path.name}.tar.xz")
    with tarfile.open(fixture, "w:xz") as archive:
        archive.add(path, path.name)
    print(path.name, fixture.stat().st_size, "bytes")


SENTENCES = [source for source, _ in pairs(16, seed=11)]
SENTENCES += ["the Äpfel, 3 xylophones?", "The dog costs costs costs zero", "Apfel zehn.", "one", "A ★ has 99 lives!"]
GERMAN_SENTENCES = [target for _, target in pairs(10, seed=12)] + ["kostet elf Äpfel", "A ★ has 99!"]
