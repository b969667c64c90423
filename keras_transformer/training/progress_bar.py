"""The line that one watches while a model trains."""

import keras

SHOWN = ("loss", "tokens/s")


class ProgressBar(keras.callbacks.ProgbarLogger):
    """Keras' bar, with few figures while an epoch lasts and all of them at its end.

    A terminal cannot take back a line that is longer than it is wide: Keras would print it again at every update.
    """

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, {name: logs[name] for name in SHOWN if name in logs})
