"""Schemathesis over the whole OpenAPI document: no 500, and every answer is as documented."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from toy_server import Served


@pytest.mark.parametrize("n_cases", [3, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(3_000)])])
def test_every_operation_answers_as_documented(served: Served, n_cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import schemathesis  # takes seconds
    from schemathesis.specs.openapi import checks

    kept = ("status_code", "content_type", "response_schema", "response_headers")
    kept_checks = [schemathesis.checks.not_a_server_error, *(getattr(checks, f"{one}_conformance") for one in kept)]
    monkeypatch.setattr("erda.serve.routes.export", lambda version, folder: folder.mkdir())  # words have no graph
    schema = schemathesis.openapi.from_dict(served.get("/openapi.json"))
    n_operations = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=n_cases,
            deadline=None,
            database=None,
            derandomize=n_cases < 10,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def call(case: Any) -> None:
            answer = case.call(base_url=served.url, session=served.http, timeout=60)
            case.validate_response(answer, checks=kept_checks)

        served.post("/v1/undo", {"to": 2})  # what earlier operations have changed
        call()
        n_operations += 1
    assert n_operations > 35
