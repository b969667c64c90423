"""What settings choose from: the presets, each with the settings that differ from the defaults, kinds, optimizers.

And how a setting whose text has several parts is read.
"""

import re

SINUSOIDAL = ("sinusoidal", "sinusoidal_halves", "sinusoidal_tensor2tensor")
POSITIONS = (*SINUSOIDAL, "learned", "relative", "rotary", "none")
AUTOREGRESSIONS = ("attention", "ssru")  # of a decoder
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu")
LENGTH_PENALTIES = (-10.0, 10.0)  # least and most alpha
MOST_HYPOTHESES = 256  # of a beam: more only cost memory, as much as V numbers for each hypothesis of each sentence
PROGRAM_ROWS, PROGRAM_LENGTHS = (1, 4), (16, 32, 64)  # of compiled searches; more rows need no program
RECURRENT = ("rnn", "lstm", "gru")  # architectures before the Transformer

TINY = {
    "d_ff": 256,
    "num_layers": 4,
    "positions": "rotary",
    "dropout_rate": 0.3,
    "pre_norm": True,
    "epochs": 80,
    "peak_learning_rate": 0.0042,
    "warmup_steps": 1000,
    "validation_sentences": 500,
    "length_penalty": 1.2,
}

# Table 3 of the paper: base and big. The others are for less data and less time.
PRESETS = {
    "quickstart": {
        "vocabulary_size": 4000,
        "dropout_rate": 0.05,
        "pre_norm": True,
        "epochs": 6,
        "batch_tokens": 2048,
        "peak_learning_rate": 0.003,
        "warmup_steps": 150,
        "schedule": "linear",
        "validation_sentences": 200,
    },
    "tiny": TINY,
    # A search runs the decoder for every token and the encoder once. So layers of the encoder are cheaper.
    "tiny_6_2": {**TINY, "num_layers": 6, "num_decoder_layers": 2},
    "tiny_6_1": {**TINY, "num_layers": 6, "num_decoder_layers": 1},
    **{
        architecture: {
            "architecture": architecture,
            "d_model": 320,
            "num_layers": 1,
            "dropout_rate": 0.3,
            "epochs": 30,
            "clip_norm": 1.0,
            "peak_learning_rate": 0.002,
            "warmup_steps": 400,
            "schedule": "linear",
            "average_epochs": 5,
            "validation_sentences": 500,
        }
        for architecture in RECURRENT
    },
    "small": {
        "vocabulary_size": 16000,
        "d_model": 256,
        "d_ff": 1024,
        "num_layers": 4,
        "dropout_rate": 0.2,
        "epochs": 30,
    },
    "base": {
        "vocabulary_size": 37000,
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "num_layers": 6,
        "batch_tokens": 25000,
        "epochs": 20,
    },
    "big": {
        "vocabulary_size": 37000,
        "d_model": 1024,
        "d_ff": 4096,
        "num_heads": 16,
        "num_layers": 6,
        "dropout_rate": 0.3,
        "batch_tokens": 25000,
        "epochs": 60,
    },
}

# Optimizers of Keras by their names, and their arguments; those of Adam are the paper's (5.3).
OPTIMIZERS = {
    "adam": {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9},
    "adamw": {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9, "weight_decay": 0.01},
    "lion": {"beta_1": 0.9, "beta_2": 0.99},
    "adafactor": {},
}


def split_heads_setting(heads):
    """The numbers in the setting `heads`: "4,3/4,4/0,2" -> [[4, 3], [4, 4], [0, 2]]; [] for other text."""
    is_right = re.fullmatch(r"\d+(,\d+)*(/\d+(,\d+)*){2}", heads)
    return [[int(number) for number in part.split(",")] for part in heads.split("/")] if is_right else []


def split_frame_setting(frame):
    """The ids in the setting `frame`: "17,5/3/" -> [[17, 5], [3], []]; [] for other text, and for padding, 0."""
    ids = "([1-9][0-9]*(,[1-9][0-9]*)*)?"
    is_right = re.fullmatch(f"{ids}(/{ids}){{2}}", frame)
    return [[int(id) for id in part.split(",") if id] for part in frame.split("/")] if is_right else []


def worker_addresses(pattern):
    """The addresses that a pattern stands for: train-{0..1}:2222 is train-0:2222 and train-1:2222.

    Args:
        pattern: str. It has the numbers in braces once, and ends with a port.

    Returns:
        list of str; empty for any other text.
    """
    found = re.fullmatch(r"([^{}]*)\{(\d{1,5})\.\.(\d{1,5})\}([^{}]*)", pattern)
    if not found:
        return []
    before, first, last, after = found.groups()
    addresses = [f"{before}{number}{after}" for number in range(int(first), int(last) + 1)]
    return addresses if all(map(is_address, addresses)) else []


def is_address(text):
    """Whether a str is the address of a program, "host:port"."""
    host, _, port = text.rpartition(":")
    return bool(re.fullmatch(r"\S+", host)) and bool(re.fullmatch(r"[0-9]{1,5}", port)) and 0 < int(port) < 1 << 16


def fits_layers(heads, num_layers, decoder_depth):
    """Whether the setting `heads` has a number for every layer, and some heads in the last one of the decoder."""
    counts = split_heads_setting(heads)
    return [*map(len, counts)] == [num_layers, decoder_depth, decoder_depth] and counts[2][-1] > 0
