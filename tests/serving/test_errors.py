import pytest
from grpc import StatusCode

from serving.errors import ServingError


@pytest.mark.parametrize(
    "code, status",
    [
        (StatusCode.INVALID_ARGUMENT, 400),
        (StatusCode.FAILED_PRECONDITION, 400),
        (StatusCode.NOT_FOUND, 404),
        (StatusCode.RESOURCE_EXHAUSTED, 429),
        (StatusCode.INTERNAL, 500),
        (StatusCode.UNIMPLEMENTED, 501),
        (StatusCode.UNAVAILABLE, 503),
        (StatusCode.DEADLINE_EXCEEDED, 504),
    ],
)
def test_rest_answers_the_status_that_belongs_to_the_code(code, status):
    assert ServingError(code, "so").http_status == status


def test_every_code_of_grpc_has_its_status():
    assert all(isinstance(ServingError(code, "").http_status, int) for code in StatusCode)
