"""What `Config` chooses from: the presets, each with the settings that differ from its defaults, kinds, optimizers.

And how a setting of several numbers is read.
"""

import re

SINUSOIDAL = ("sinusoidal", "sinusoidal_halves", "sinusoidal_tensor2tensor")
POSITIONS = (*SINUSOIDAL, "learned", "relative", "rotary", "none")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu")
LENGTH_PENALTIES = (-10.0, 10.0)  # least and most alpha
MOST_HYPOTHESES = 256  # of a beam: more only cost memory, as much as V numbers for each hypothesis of each sentence
TYPED = ("upper_case", "title_case", "typos", "noise")  # shares of the pairs that are changed as people type

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
    "length_penalty": 1.8,
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
        for architecture in ("rnn", "lstm", "gru")
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

# Settings that have an effect with some values of other settings only.
_TRANSFORMER = {"architecture": ("transformer",)}
_RECURRENT = {"architecture": ("rnn", "lstm", "gru")}
_ATTENTION = {**_RECURRENT, "attention": ("additive", "dot", "general", "concat")}
EFFECTS = {
    **dict.fromkeys(("d_ff", "num_heads", "d_key", "num_key_value_heads", "num_decoder_layers"), _TRANSFORMER),
    **dict.fromkeys(("attention_dropout_rate", "feed_forward_dropout_rate", "pre_norm", "positions"), _TRANSFORMER),
    **dict.fromkeys(("heads", "d_value", "attention_bias", "activation", "layer_norm_epsilon", "frame"), _TRANSFORMER),
    **dict.fromkeys(("logits_bias", "scale_embeddings", "embedding_norm"), _TRANSFORMER),
    "first_position": {**_TRANSFORMER, "positions": SINUSOIDAL},
    "tie_positions": {**_TRANSFORMER, "positions": ("learned",)},
    "relative_clip": {**_TRANSFORMER, "positions": ("relative",)},
    **dict.fromkeys(("bidirectional", "attention", "input_feeding"), _RECURRENT),
    "context": {**_RECURRENT, "attention": ("none",)},
    **dict.fromkeys(("attention_span", "hard_attention"), _ATTENTION),
    "attention_window": {**_ATTENTION, "attention_span": ("local_m", "local_p")},
    "consistency_weight": {"consistency": ("simcut", "r_drop")},
    "cut_rate": {"consistency": ("simcut",)},
    "workers": {"strategy": ("multi_worker",)},
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
