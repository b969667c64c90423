from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from keras_transformer.training.projector import write_embedding
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from werkzeug.test import Client

from keras_transformer.training import projector
from tests import tiny

D = 13
QUERY = "?run=logs%2Ftrain&name=embedding"


def plugin_apps(root):
    """The web applications of TensorBoard's projector."""
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(root))
    multiplexer.Reload()
    context = TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(root)), logdir=str(root))
    return {path: Client(app) for path, app in ProjectorPlugin(context).get_plugin_apps().items()}


def written(tmp_path, vectors, tokenizer):
    """The same, after the embedding has been written where curves are."""
    directory = tmp_path / "logs" / "train"
    writer = tf.summary.create_file_writer(str(directory))
    with writer.as_default():
        tf.summary.scalar("loss", 3.0, step=1)
    writer.close()
    write_embedding(directory, vectors, tokenizer)
    return plugin_apps(tmp_path)


def test_the_projector_shows_the_vector_of_every_piece(tmp_path):
    vectors = np.random.default_rng(7).normal(size=(tiny.VOCABULARY, D)).astype("float32")
    apps = written(tmp_path, vectors, tiny.tokenizer())
    assert apps["/runs"].get("/").json == ["logs/train"]
    (embedding,) = apps["/info"].get("/" + QUERY).json["embeddings"]
    assert embedding["tensorShape"] == [tiny.VOCABULARY, D]
    shown = np.frombuffer(apps["/tensor"].get("/" + QUERY).data, "float32").reshape(tiny.VOCABULARY, D)
    np.testing.assert_allclose(shown, vectors, rtol=1e-4)
    labels = apps["/metadata"].get("/" + QUERY).get_data(as_text=True).splitlines()
    assert labels == tiny.tokenizer().labels(tf.range(tiny.VOCABULARY))


def test_a_large_vocabulary_is_cut_to_its_first_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(projector, "MOST_PIECES", 5)
    tokenizer = SimpleNamespace(labels=lambda ids: [f"piece {i}" for i in ids])
    apps = written(tmp_path, np.arange(11.0 * D).reshape(11, D), tokenizer)
    shown = np.frombuffer(apps["/tensor"].get("/" + QUERY).data, "float32")
    np.testing.assert_array_equal(shown, np.arange(5 * D))
    assert apps["/metadata"].get("/" + QUERY).get_data(as_text=True) == "".join(f"piece {i}\n" for i in range(5))


def test_what_was_written_before_is_replaced(tmp_path):
    tokenizer = SimpleNamespace(labels=lambda ids: [f"piece {i}" for i in ids])
    for value in (3.0, 7.0):
        write_embedding(tmp_path / "made", np.full((2, D), value), tokenizer)
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "made" / "embedding.tsv"), np.full((2, D), 7.0))
    assert len(list((tmp_path / "made").iterdir())) == 3
