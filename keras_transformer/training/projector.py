"""The learned embedding, for TensorBoard's projector."""

import numpy as np
from tensorboard.plugins import projector

from keras_transformer.training.checkpoints import write_atomically

MOST_PIECES = 10_000  # more are slow in a browser; in SentencePiece's order the frequent ones come first


def write_embedding(directory, matrix, tokenizer):
    """Writes the vectors of the first `MOST_PIECES` pieces, and the pieces as their labels.

    Args:
        directory: pathlib.Path, one that TensorBoard finds curves in; made if there is none.
        matrix: float (V, D).
        tokenizer: the `Tokenizer` of its rows.
    """
    vectors = np.asarray(matrix)[:MOST_PIECES]
    labels = tokenizer.labels(np.arange(len(vectors), dtype=np.int32))
    config = projector.ProjectorConfig()
    embedding = config.embeddings.add(
        tensor_name="embedding", tensor_path="embedding.tsv", metadata_path="embedding_pieces.tsv"
    )
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(
        directory / embedding.tensor_path, lambda path: np.savetxt(path, vectors, fmt="%.5g", delimiter="\t")
    )
    write_atomically(
        directory / embedding.metadata_path,
        lambda path: path.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8"),
    )
    projector.visualize_embeddings(str(directory), config)
