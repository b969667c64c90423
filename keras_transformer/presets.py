"""What `Config` chooses from: the presets, each with the settings that differ from its defaults, and the optimizers."""

TINY = {
    "d_ff": 256,
    "num_layers": 4,
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
