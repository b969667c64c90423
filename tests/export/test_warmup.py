import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from keras_transformer.errors import ExportError
from keras_transformer.export.saved_model import SavedModelExport, open_like_serving
from keras_transformer.export.versions import export_version
from keras_transformer.export.warmup import (
    BATCH_SIZES,
    describe_warm_up,
    read_warm_up,
    replay,
    warm_up_requests,
    write_warm_up,
)
from keras_transformer.translation.options import INPUTS, options_of

EVERY_REQUEST = [(name, size) for name in sorted(INPUTS) for size in sorted(BATCH_SIZES)]


def echo(**inputs):
    return {"translation": inputs["text"], "score": tf.zeros(tf.shape(inputs["text"]))}


def only_seven(**inputs):
    with tf.control_dependencies([tf.debugging.assert_less(tf.size(inputs["text"]), 8, "at most seven")]):
        return echo(**{name: tf.identity(value) for name, value in inputs.items()})


def not_a_number(**inputs):
    return {**echo(**inputs), "score": tf.fill(tf.shape(inputs["text"]), np.nan)}


def one_row(**inputs):
    return {"translation": tf.concat([inputs["text"][:1], ["more"]], 0)}


FAULTS = {  # signature -> what it does in place of `echo`, and the error of its warm-up
    "score": (only_seven, "signature score with a batch of 16 fails.*at most seven"),
    "explain": (not_a_number, "signature explain with a batch of 1 fails.*score has numbers that are not finite"),
    "alternatives": (one_row, r"signature alternatives with a batch of 1 fails.*translation has the shape \(2,\)"),
}


@pytest.fixture(scope="module")
def echoing(tmp_path_factory):
    """The path of a SavedModel with the inputs of a real one, whose signatures `echo` but for those of `FAULTS`."""

    def signature(name, inputs):
        specs = {input_name: tf.TensorSpec([None], dtype, input_name) for input_name, dtype in inputs.items()}
        function, _ = FAULTS.get(name, (echo, None))
        return tf.function(lambda **inputs: function(**inputs)).get_concrete_function(**specs)

    path = tmp_path_factory.mktemp("echoing")
    signatures = {name: signature(name, inputs) for name, inputs in INPUTS.items()}
    tf.saved_model.save(tf.Module(), str(path), signatures=signatures)
    write_warm_up(path)
    return path


def test_every_signature_has_a_request_of_every_batch_size_that_leaves_no_operation_out():
    requests = [(request.model_spec.signature_name, request) for request in warm_up_requests()]
    assert sorted((name, size(request)) for name, request in requests) == EVERY_REQUEST
    for name, request in requests:
        assert {tensor.tensor_shape.dim[0].size for tensor in request.inputs.values()} == {size(request)}
        inputs = {name: tf.dtypes.as_dtype(tensor.dtype) for name, tensor in request.inputs.items()}
        assert inputs == INPUTS[name]
        for option in options_of(name):
            values = tf.make_ndarray(request.inputs[option.name])
            expected = np.array([option.example] * size(request))
            assert values.astype(expected.dtype).tolist() == expected.tolist() or np.allclose(values, expected)
            assert values.all()  # none is 0 or empty, which would be "not given"
            given = values.tolist()[0]
            assert given not in (option.not_given, option.default)
            assert not option.range or option.least <= given <= option.most


def test_the_file_is_where_tensorflow_serving_looks_for_it_and_the_manifest_says_what_is_replayed(echoing):
    path = echoing / "assets.extra" / "tf_serving_warmup_requests"
    logs = [PredictionLog.FromString(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]
    assert [log.WhichOneof("log_type") for log in logs] == ["predict_log"] * len(EVERY_REQUEST)
    assert [log.predict_log.request for log in logs] == warm_up_requests() == read_warm_up(echoing)
    assert len(logs) <= 1000  # more are not read
    assert describe_warm_up(echoing) == {
        "file": "assets.extra/tf_serving_warmup_requests",
        "requests": len(EVERY_REQUEST),
        "signatures": sorted(INPUTS),
        "batch_sizes": sorted(BATCH_SIZES),
    }


def test_every_request_is_run_and_one_that_fails_is_named(echoing):
    requests, runs = {name: [] for name in INPUTS}, []
    for request in warm_up_requests():
        requests[request.model_spec.signature_name].append(request)
    with open_like_serving(echoing) as (session, signatures):

        def run(fetches, feeds):
            runs.append([(name, len(value)) for name, value in feeds.items()])
            return session.run(fetches, feeds)

        for name, own in requests.items():
            if name in FAULTS:
                with pytest.raises(ExportError, match=FAULTS[name][1]):
                    replay(session, signatures, own)
            else:
                replay(SimpleNamespace(run=run), signatures, own)
        fed = [(signatures[name].inputs["text"].name, size) for name, size in EVERY_REQUEST if name not in FAULTS]
    assert sorted(pair for run in runs for pair in run if pair in fed) == sorted(fed)


def test_a_request_that_fails_fails_the_export(echoing, tmp_path):
    class Failing(SavedModelExport):
        def write(self, directory):
            shutil.copytree(echoing, directory, dirs_exist_ok=True)

    with pytest.raises(ExportError, match="the warm-up request for signature alternatives") as raised:
        export_version(Failing(None), tmp_path / "exports")
    assert "\n" not in str(raised.value) and not (tmp_path / "exports").exists()


def test_a_request_that_does_not_suit_the_model_is_named(echoing):
    (request,) = (r for r in warm_up_requests() if r.model_spec.signature_name == "sample" and size(r) == 1)
    with open_like_serving(echoing) as (session, signatures):
        for name, message in {"nowhere": "signature nowhere", "translate": "those of the signature {'text'"}.items():
            request.model_spec.signature_name = name
            with pytest.raises(ExportError, match=message):
                replay(session, signatures, [request])


def size(request):
    return request.inputs["text"].tensor_shape.dim[0].size
