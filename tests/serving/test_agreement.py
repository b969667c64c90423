"""A black box: what TensorFlow Serving's own tests and sources say, asked of this server over REST and gRPC.

The statuses, the codes and the values are those of TensorFlow Serving. The words are our own.
"""

import gzip
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_management_pb2
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from tests.serving import small
from tests.serving.live import ask, both, refusal

DTYPES = "int8 uint8 int32 int64 uint16 uint32 uint64 float16 float64 bool complex64".split()
SIGNATURES = {name: small.same(x=tf.as_dtype(name)) for name in DTYPES}
SIGNATURES |= {
    "serving_default": small.same(x=tf.float32),
    "fixed": small.same(x=(tf.float32, (3,))),
    "scalar": small.same(x=(tf.float32, ())),
    "string": small.same(x=tf.string),
    "several": small.same(int_tensor=tf.int32, str_tensor=tf.string, float_tensor=tf.float32, dbl_tensor=tf.float64),
    "text_bytes": lambda: ((pair := small.same(x=tf.string)())[0], {"y_bytes": pair[1]["out_x"]}),
    "nothing": lambda: ({}, {"y": tf.constant([1.0, 2.0])}),
    **{f"to_{name}": small.cast(name) for name in ("complex64", "half", "bfloat16", "uint16")},
    "uneven": lambda: ((pair := small.same(x=tf.float32)())[0], pair[1] | {"z": tf.constant([1.0, 2.0, 3.0, 4.0])}),
}
FINE = {"state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    for version in (123, 124):
        small.write(path / "half_plus_two", f"{version:08}", serving_default=small.affine(2.0, (None, 1)))
    small.write(path / "half_plus_three", 1, serving_default=small.affine(3.0, None))
    small.write(path / "same", 7, **SIGNATURES)
    names = ("half_plus_two", "half_plus_three", "same")
    with both({name: path / name for name in names}) as server:
        server.models._configs["half_plus_two"].labels["stable"] = 123
        yield server


def predict(server, body, model="same", which=""):
    """The status, and what is predicted, put out or wrong."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, _, reply = ask(server.port, "POST", f"/v1/models/{model}{which}:predict", body)
    ((key, value),) = reply.items()
    assert (key == "error") == (status != 200) and value != ""
    return status, value


def request(model, signature="", version=None, label=None, outputs=(), **inputs):
    spec = {"name": model, "signature_name": signature}
    spec |= {"version": {"value": version}} if version else {"version_label": label} if label else {}
    protos = {name: tf.make_tensor_proto(value) for name, value in inputs.items()}
    return PredictRequest(model_spec=spec, inputs=protos, output_filter=outputs)


def code_of(call, request):
    code, message = refusal(call, request)
    assert message
    return code


def test_the_graph_alone_judges_shapes(server):
    for model, instances, predictions in (
        ("half_plus_two", [[1.0, 2.0], [3.0, 4.0]], [[2.5, 3.0], [3.5, 4.0]]),
        ("half_plus_two", [[[[1]]]], [[[[2.5]]]]),
        ("half_plus_two", [{"x": 2.0}], [3.0]),
        ("half_plus_three", [[]], [[]]),
    ):
        assert predict(server, {"instances": instances}, model) == (200, predictions)
        columns = [row.get("x") if isinstance(row, dict) else row for row in instances]
        assert predict(server, {"inputs": columns}, model) == (200, predictions)
        response = server.predict(request(model, x=np.array(columns, np.float32)))
        np.testing.assert_array_equal(tf.make_ndarray(response.outputs["y"]), predictions)


def test_values_of_every_type_are_read_and_written(server):
    for signature, body, expected in (
        ("serving_default", "[1, 2.0, 3, 5.003, 0.007, 0.0]", [1.0, 2.0, 3.0, 5.003, 0.007, 0.0]),
        ("serving_default", "[1435774380]", [1435774336.0]),  # by its nine digits: 1.43577434e+09
        ("serving_default", "[1.7976931348623157e308, 1e-99999]", [np.inf, 0.0]),
        ("serving_default", "[NaN, Infinity, -Infinity, -NaN]", [np.nan, np.inf, -np.inf, np.nan]),
        ("serving_default", f"[18446744073709551616, {300 * '9'}]", [1.84467441e19, np.inf]),
        ("float64", f"[{300 * '9'}]", [1e300]),
        ("int8", "[300, -129]", [44, 127]),  # the low bits, as TensorFlow casts them
        ("int64", "[-9223372036854775808, 9223372036854775807]", [-(2**63), 2**63 - 1]),
        ("uint64", "[18446744073709551615]", [2**64 - 1]),
        ("bool", "[true, false]", [True, False]),
        ("string", '["a", {"b64": "d29y bGQ"}]', ["a", "world"]),
        ("string", '[[{"b64": "aGVsbG8="}], [{"b64": "d29ybGQ="}]]', [["hello"], ["world"]]),
        ("string", '[{"b64": "aGk."}, {"b64": "a G\\tk"}, {"b64": "YQ.."}, {"b64": ""}]', ["hi", "hi", "a", ""]),
        ("string", '["\\ud83d\\ude00 Inf -NaN \\"Inf", "\\\\ud83d"]', ['😀 Inf -NaN "Inf', "\\ud83d"]),
        ("text_bytes", '["hello", "w"]', [{"b64": "aGVsbG8="}, {"b64": "dw=="}]),
        ("fixed", "[1, 2]", [1.0, 2.0]),
    ):
        name = f'"signature_name": "{signature}"'
        for key in ("instances", "inputs"):
            status, found = predict(server, f'{{{name}, "{key}": {body}}}'.encode())
            assert status == 200
            if isinstance(expected[0], float):
                np.testing.assert_allclose(found, expected, rtol=1e-7)
            else:
                assert found == expected


def test_several_inputs_are_rows_of_objects_or_columns(server):
    rows = [
        {"int_tensor": [[1, 2], [3, 4]], "str_tensor": ["foo", "bar"], "float_tensor": [1.0], "dbl_tensor": 5},
        {"int_tensor": [[7, 8], [9, 0]], "str_tensor": ["baz", "bat"], "float_tensor": [2.0], "dbl_tensor": 6},
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    of_rows, of_columns = ({f"out_{name}": value for name, value in each.items()} for each in (rows[0], columns))
    status, found = predict(server, {"signature_name": "several", "instances": rows})
    assert (status, found[0], len(found)) == (200, of_rows, 2)
    assert predict(server, {"signature_name": "several", "inputs": columns}) == (200, of_columns)
    columns["str_tensor"] = {"b64": "aGVsbG8="}
    assert predict(server, {"signature_name": "several", "inputs": columns})[1]["out_str_tensor"] == "hello"


def test_a_document_is_read_as_rapidjson_reads_it_after_it_is_inflated(server):
    for body in (
        b'{"instances": [2]} and more',
        b'\xef\xbb\xbf \r\n\t{"instances": [2]}',
        b'{"instances": [2], "instances": ["a"], "signature_name": "", "signature_name": 5}',
        b'{"other": {"a": null}, "instances": [2]}',
        b'{"instances": [2], "nested": ' + 500 * b"[" + 500 * b"]" + b"}",
    ):
        assert predict(server, body) == (200, [2.0])
    path, how, zipped = "/v1/models/same:predict", {"Content-Encoding": "gzip"}, gzip.compress(body)
    assert ask(server.port, "POST", path, zipped, how)[2] == {"predictions": [2.0]}
    for broken in (b"{}", zipped[:-3], gzip.compress(bytes(101 * 2**20), 1)):
        assert ask(server.port, "POST", path, broken, how)[0] == 400


def test_numbers_are_written_with_six_digits_where_they_suffice_and_strings_byte_by_byte(server):
    for signature, values in (
        (b"serving_default", b"[9e+06, 999999.0, 0.5, 0.0003, 3e-05, 555557.5, 3.0, 0.123456791]"),
        (b"float64", b"[0.20000000000000001, 1e+20, 0.12345678901234568]"),
        (b"string", b'["\xff\xc3"]'),
    ):
        body = b'{"signature_name": "%s", "instances": %s}' % (signature, values)
        _, _, text = ask(server.port, "POST", "/v1/models/same:predict", body, parse=bytes)
        assert text == b'{"predictions": %s}' % values.replace(b"0.20000000000000001", b"0.2")


DEEP = 977 * b'{"a":' + b"1" + 977 * b"}"
BODIES = [
    *[(body, 400) for body in (b"", b"instances = [1, 2]", b"[1]", b"{}", b'{"instances": []}')],
    (b'{"signature_name": 100}', 400),
    (b'{"signature_name": ' + 50_000 * b"[" + 50_000 * b"]" + b"}", 400),
    (b'{"instances": [1], "inputs": [1]}', 400),
    (b'{"signature_name": "float64", "instances": [{"x": ' + DEEP + b"}]}", 400),
    (b'{"instances": [1e400]}', 400),
    (b'{"instances": [' + 5000 * b"9" + b"]}", 400),
    (b'{"instances": ' + 32 * b"[" + 32 * b"]" + b"}", 200),  # 31 dimensions of a row
    (b'{"instances": ' + 33 * b"[" + 33 * b"]" + b"}", 400),
    *[
        (b'{"signature_name": "string", "instances": ["%s"]}' % text, 400)
        for text in (b"\\ud800", b"a\\ude00", b"\n", b"\\x", b"\\u00g0", b"\0")
    ],
    *[(b'{"instances": %s}' % text, 400) for text in b"1 [1,] {1:2} {'a':1} nul [Nan] [1.] [.5] [01]".split()],
]
MISTAKES = {
    "": """[{"instances": ["x", "y"]}, {"instances": [[1, 2], [3, 4], [5, 6, 7]]}, {"instances": [1, [1]]},
        {"instances": [[[1], 2]]}, {"instances": [{"y": 1}]}, {"instances": [{"x": 1}, 2]}, {"inputs": {"y": 1}},
        {"instances": [2, {"x": 1}]}, {"instances": [true]}, {"instances": [[], [1]]}, {"instances": [{}]},
        {"instances": [{"x": 1, "y": 2}]}, {"instances": [{"x": [1]}, {"x": [1, 2]}]}, {"inputs": {}},
        {"inputs": {"b64": "aGk="}}, {"inputs": null}, {"inputs": [[1, 2], [3]]}]""",
    "int32": '[{"instances": [1.0]}, {"instances": [2147483648]}, {"instances": [true]}]',
    "int64": '[{"instances": [9223372036854775808]}]',
    "uint64": '[{"instances": [-1]}, {"inputs": [18446744073709551616]}]',
    "uint16": '[{"instances": [1]}]',
    "bool": '[{"instances": [1]}, {"instances": ["true"]}]',
    "float64": '[{"instances": ["NaN"]}]',
    "string": """[{"instances": [null]}, {"instances": [{"b64": "?"}]}, {"inputs": [{"b64": 1}]},
        {"inputs": [{"c": "aGk="}]}, {"instances": [{"b64": "aGk=", "c": 1}]}, {"inputs": {"b64": "YQ="}},
        {"inputs": {"b64": "YWJj="}}, {"inputs": {"b64": "a-_k"}}, {"inputs": {"b64": "YQ\\u00a0=="}}]""",
    "several": '[{"instances": [1]}, {"inputs": [1]}, {"instances": [{"int_tensor": 1}]}]',
    **{name: '[{"instances": [1]}]' for name in ("nothing", "other")},
    **{f"to_{name}": '[{"inputs": [1]}]' for name in ("complex64", "half", "bfloat16", "uint16")},
    "uneven": '[{"instances": [1, 2]}]',
}
OTHERS = [
    ("float16", {"inputs": [1.5]}, 501),
    ("uint16", {"inputs": [1]}, 501),
    ("complex64", {"inputs": []}, 200),  # no value, no mistake
    ("", {"instances": [[]]}, 200),
    ("", {"inputs": {"x": [1], "other": "ignored"}}, 200),
    ("string", {"instances": [{"b64": "aGk="}, "x"]}, 200),
    ("scalar", {"instances": [1, 2]}, 200),
]
OTHERS += [(name, body, 400) for name, bodies in MISTAKES.items() for body in json.loads(bodies)]


def test_mistakes_over_rest_have_the_status_of_tensorflow_serving(server):
    bodies = BODIES + [(json.dumps({"signature_name": name, **body}).encode(), status) for name, body, status in OTHERS]
    found = {body: (predict(server, body)[0], status) for body, status in bodies}
    assert {body[:200]: pair for body, pair in found.items() if pair[0] != pair[1]} == {}


def test_paths_are_those_of_tensorflow_serving(server):
    half, many = "half_plus_two", 5000 * "9"
    for status, posts, gets in (  # paths under /v1/models/
        (
            400,
            f"""{half}/labels/x:predict {half}/versions/18446744073709551615:predict {half}/versions/{many}:predict
            {half}/metadata foo/version/50:regress foo/versions/HELLO:regress foo/label/some_label:regress
            {half}:PREDICT foo/versions/50/labels/some_label:regress ../foo""",
            f"versions/3 {half}/metadata?x=1 foo/ foo/labels/a:b debug/model_name foo:predict {half}/labels/x/metadata",
        ),
        (
            404,
            f"foo:predict foo/versions/50:predict {half}/versions/9:predict {half}/versions/{5000 * '0'}9:predict",
            f"metadata foo/METADATA {half}/versions/9 foo/metadata modelname%21%23%24%2F%3A",
        ),
        (501, f"{half}:classify {half}:regress", ""),
    ):
        asked = [("POST", path, {}) for path in posts.split()] + [("GET", path, None) for path in gets.split()]
        for method, path, body in asked:
            found, headers, reply = ask(server.port, method, f"/v1/models/{path}", body)
            assert (found, headers["Content-Type"], [*reply]) == (status, "application/json", ["error"]), path
    for path in ("/v1/foo", "/v1/models"):
        assert ask(server.port, "GET", path)[0] == ask(server.port, "POST", path, {})[0] == 400
    path = "/v1/models/same:predict"
    assert ask(server.port, "OPTIONS", path, headers={"Origin": "http://example.com"})[0] == 200
    assert ask(server.port, "OPTIONS", path)[::2] == (400, b"")


def test_versions_and_labels_are_found_and_the_status_of_a_label_is_that_of_all_versions(server):
    for which, version in (("", 124), ("/versions/123", 123), ("/versions/0123", 123), ("/labels/stable", 123)):
        assert predict(server, {"instances": [2.0]}, "half_plus_two", which) == (200, [3.0])
        _, _, reply = ask(server.port, "GET", f"/v1/models/half_plus_two{which}/metadata")
        assert reply["model_spec"] == {"name": "half_plus_two", "signature_name": "", "version": f"{version}"}
    response = server.predict(request("half_plus_two", label="stable", x=[2.0]))
    assert (response.model_spec.version.value, response.model_spec.signature_name) == (123, "serving_default")
    every = [{"version": "124", **FINE}, {"version": "123", **FINE}]
    for which, expected in (("", every), ("/versions/123", every[1:]), ("/labels/x", every)):
        assert ask(server.port, "GET", f"/V1/MODELS/half_plus_two{which}")[2] == {"model_version_status": expected}
    asked = get_model_status_pb2.GetModelStatusRequest
    status = asked(model_spec={"name": "half_plus_two", "version_label": "x"})
    assert [version.version for version in server.status(status).model_version_status] == [124, 123]
    assert code_of(server.status, asked()) == "INVALID_ARGUMENT"
    assert code_of(server.status, asked(model_spec={"name": "foo"})) == "NOT_FOUND"


def test_metadata_has_the_signatures_as_they_are_written(server):
    _, _, reply = ask(server.port, "GET", "/v1/models/half_plus_two/metadata")
    shape = {"dim": [{"size": "-1", "name": ""}, {"size": "1", "name": ""}], "unknown_rank": False}
    assert reply["metadata"]["signature_def"]["signature_def"]["serving_default"] == {
        "inputs": {"x": {"name": "x:0", "dtype": "DT_FLOAT", "tensor_shape": shape}},
        "outputs": {"y": {"name": "add:0", "dtype": "DT_FLOAT", "tensor_shape": shape}},
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    }
    fields = {"model_spec": {"name": "same"}, "metadata_field": ["signature_def"]}
    asked, found = get_model_metadata_pb2.GetModelMetadataRequest, get_model_metadata_pb2.SignatureDefMap()
    assert server.metadata(asked(**fields)).metadata["signature_def"].Unpack(found)
    assert {*found.signature_def} == {*SIGNATURES}
    for change in ({"metadata_field": []}, {"metadata_field": ["x"]}, {"model_spec": {}}):
        assert code_of(server.metadata, asked(**(fields | change))) == "INVALID_ARGUMENT"


def test_mistakes_over_grpc_have_the_code_of_tensorflow_serving(server):
    broken = {"x": {"dtype": 1, "tensor_content": b"abc"}}
    foo, same = ({"name": name} for name in ("foo", "same"))
    for code, requests in {
        "NOT_FOUND": [
            request("foo", x=1.0),
            request("same", version=50),
            PredictRequest(model_spec=foo, inputs=broken),
        ],
        "FAILED_PRECONDITION": [request("same", "other")],
        "INVALID_ARGUMENT": [
            *(PredictRequest(), request(""), request("same", label="x"), request("same"), request("same", y=1.0)),
            *(request("same", x=[1.0], y=[1.0]), request("same", x="a"), request("same", x=np.ones(1))),
            *(request("same", x=[1.0], outputs=outputs) for outputs in (["y"], ["out_x"] * 2)),
            PredictRequest(model_spec=same, inputs=broken),
            PredictRequest(model_spec={**same, "version_label": ""}),
        ],
    }.items():
        assert [code_of(server.predict, asked) for asked in requests] == [code] * len(requests)


def reload(*configs, platform="tensorflow"):
    request = model_management_pb2.ReloadConfigRequest()
    request.config.model_config_list.SetInParent()
    for name, path, *labels in configs:
        config = {"name": name, "base_path": str(path), "model_platform": platform, "version_labels": dict(labels)}
        request.config.model_config_list.config.add(**config)
    return request


def test_a_configuration_may_move_a_model_empty_the_server_and_is_refused_as_there(tmp_path):
    """And requests are counted as there: only good ones have a latency."""
    a = small.write(tmp_path / "a", 1, serving_default=small.affine(1.0))
    b = small.write(tmp_path / "b", 2, serving_default=small.affine(5.0))
    with both({"m": a}) as server:
        assert predict(server, {"instances": [2.0]}, "m") == (200, [2.0])
        for moved in (reload(("m", b)), reload(("m", b, ("stable", 2)))):
            assert server.reload(moved).status.error_code == 0
        assert predict(server, {"instances": [2.0]}, "m", "/labels/stable") == (200, [6.0])
        wrong = [reload(("m", "relative/path")), reload(("", "/a")), reload(("m", "/a"), ("m", "/b"))]
        for asked in (*wrong, model_management_pb2.ReloadConfigRequest(), reload(("n", "/a"), platform="other")):
            assert code_of(server.reload, asked) == "INVALID_ARGUMENT"
        assert code_of(server.reload, reload(("m", b, ("new", 9)))) == "FAILED_PRECONDITION"
        for body in ({"instances": ["a"]}, b""):
            predict(server, body, "m")
        ask(server.port, "GET", "/v1/models/m")
        server.predict(request("m", x=[1.0]))
        code_of(server.predict, request("m", "other"))
        code_of(server.predict, request("made up"))
        server.reload(reload())
        assert predict(server, {"instances": [2.0]}, "m")[0] == 404
        page = server.metrics.page()
    for line in (
        *('request_count{model_name="m",status="OK"} 4', 'request_count{model_name="m",status="INVALID_ARGUMENT"} 2'),
        'request_latency_count{model_name="m",API="predict",entrypoint="REST"} 2',
        'request_latency_count{model_name="m",API="",entrypoint="REST"} 1',
        'request_latency_count{model_name="m",API="Predict",entrypoint="GRPC"} 1',
        'runtime_latency_count{model_name="m",API="Predict",runtime="TF1"} 3',
    ):
        assert f":tensorflow:serving:{line}\n" in page
    assert "made up" not in page
