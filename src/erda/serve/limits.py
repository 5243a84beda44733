"""Limits of a server; a request beyond one is rejected with the status named beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server accepts. Sizes of bodies are bytes, sizes of texts are characters."""

    body_size: int = 8_000_000  # 413
    n_batch: int = 1_000  # 422: sentences or examples of a request that is answered at once
    text_size: int = 100_000  # 422: characters of a document that is extracted from at once
    n_job: int = 50_000  # 422: sentences, examples or documents of a job
    n_queued: int = 10_000  # 503: questions that wait for an answer
    n_writes: int = 200  # 503: teachings and corrections that wait
    n_jobs: int = 20  # 503: jobs that wait
    n_kept_jobs: int = 100  # finished jobs whose results are kept
    n_active: int = 1_000  # 503: requests in progress
    stop_seconds: int = 10  # for requests in progress when the server stops
