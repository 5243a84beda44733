"""What is in a corpus, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erda.corpus.manifest import Manifest
from erda.corpus.sql import file_list


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Counts over all rows. `repeated_pairs` are the entity pairs with two or more sentences."""

    n_rows: int
    n_sentences: int
    n_pairs: int
    repeated_pairs: int
    rows_of_repeated: int
    n_entities: int
    n_documents: int
    length_mean: float
    length_median: float
    length_p95: float
    length_max: int
    sources: tuple[tuple[str, int], ...]
    dropped: dict[str, int]
    excluded_from: tuple[str, ...]
    digest: str


def corpus_stats(connection: Any, parts: Sequence[Path], manifest: Manifest) -> CorpusStats:
    """Count; groups larger than memory spill to disk."""
    rows = f"read_parquet({file_list(parts)})"
    counts: dict[str, Any] = {}
    for query in (
        "SELECT count(*) AS n_rows, count(DISTINCT source) AS n_documents, avg(n) AS length_mean, "
        "median(n) AS length_median, quantile_cont(n, 0.95) AS length_p95, max(n) AS length_max "
        f"FROM (SELECT source, length(text) - length(replace(text, ' ', '')) + 1 AS n FROM {rows})",
        "SELECT count(*) AS n_pairs, count(*) FILTER (n > 1) AS repeated_pairs, "
        "coalesce(sum(n) FILTER (n > 1), 0)::BIGINT AS rows_of_repeated "
        f"FROM (SELECT count(*) AS n FROM {rows} GROUP BY hash(head_key, tail_key))",
        "SELECT count(DISTINCT key) AS n_entities "
        f"FROM (SELECT unnest([hash(head_key), hash(tail_key)]) AS key FROM {rows})",
        f"SELECT count(DISTINCT sentence) AS n_sentences FROM {rows}",
    ):
        found = connection.execute(query)
        counts |= zip((column[0] for column in found.description), found.fetchall()[0], strict=True)
    sources = [(Path(source.path).name, source.n_rows) for segment in manifest.segments for source in segment.sources]
    return CorpusStats(
        **counts,
        sources=tuple(sources),
        dropped=manifest.dropped,
        excluded_from=manifest.excluded_from,
        digest=manifest.digest,
    )
