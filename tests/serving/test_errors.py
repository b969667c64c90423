from grpc import StatusCode

from serving.errors import ServingError


def test_every_code_of_grpc_has_the_http_status_of_tensorflow_serving():
    statuses = {code.name: ServingError(code, "").http_status for code in StatusCode}
    expected = {"OK": 200, "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504}
    expected |= {"NOT_FOUND": 404, "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429}
    expected |= {"FAILED_PRECONDITION": 400, "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501}
    assert statuses == expected | {"INTERNAL": 500, "UNAVAILABLE": 503, "DATA_LOSS": 500, "UNAUTHENTICATED": 401}
