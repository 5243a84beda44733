"""What is in a corpus, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erda.corpus.engine import file_list
from erda.corpus.manifest import Manifest

_TOKENS = "length(text) - length(replace(text, ' ', '')) + 1"


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
    rows = f"read_parquet({file_list(list(parts))})"
    n_rows, n_documents, mean, median, p95, longest = connection.execute(
        f"SELECT count(*), count(DISTINCT source), avg(n), median(n), quantile_cont(n, 0.95), max(n) "
        f"FROM (SELECT source, {_TOKENS} AS n FROM {rows})"
    ).fetchall()[0]
    n_pairs, repeated, rows_of_repeated = connection.execute(
        "SELECT count(*), count(*) FILTER (n > 1), coalesce(sum(n) FILTER (n > 1), 0) "
        f"FROM (SELECT count(*) AS n FROM {rows} GROUP BY hash(head_key, tail_key))"
    ).fetchall()[0]
    n_entities = connection.execute(
        f"SELECT count(DISTINCT key) FROM (SELECT unnest([hash(head_key), hash(tail_key)]) AS key FROM {rows})"
    ).fetchall()[0][0]
    n_sentences = connection.execute(f"SELECT count(DISTINCT sentence) FROM {rows}").fetchall()[0][0]
    sources = [(Path(source.path).name, source.n_rows) for segment in manifest.segments for source in segment.sources]
    return CorpusStats(
        n_rows=n_rows,
        n_sentences=n_sentences,
        n_pairs=n_pairs,
        repeated_pairs=repeated,
        rows_of_repeated=int(rows_of_repeated),
        n_entities=n_entities,
        n_documents=n_documents,
        length_mean=mean,
        length_median=median,
        length_p95=p95,
        length_max=longest,
        sources=tuple(sources),
        dropped=manifest.dropped,
        excluded_from=manifest.excluded_from,
        digest=manifest.digest,
    )
