"""Run every job once on a cluster and write the results as JSON; `test_embedders.py` starts this script.

Ray reads the cluster's token from the environment when it is imported, so the test process cannot connect itself.
"""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import ray

from erda.corpus.corpus_store import CorpusStore
from erda.corpus.similarity import load_similarity
from erda.corpus.vector_shards import ShardWorker, embed_corpus, ray_embedder, vectors_folder
from erda.errors import ErdaError


def main(address: str, corpus: str, model_name: str, out: str) -> None:
    ray.init(address=address, log_to_driver=False, logging_level="error", _node_ip_address="127.0.0.1")
    store, model = CorpusStore.open(Path(corpus)), load_similarity(model_name)
    found: dict[str, object] = {"nodes": sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])}
    worker = ShardWorker(corpus=store.folder, digest=store.digest, model=model_name, fingerprint=model.fingerprint)
    try:
        other = ray_embedder(replace(worker, fingerprint="0" * 64), address, 1)
        embed_corpus(store, model, shard_rows=50, embedder=other)
    except ErdaError as fault:
        found["fault"] = [type(fault).__name__, str(fault)]
    shutil.rmtree(vectors_folder(store, model.fingerprint))
    shards = embed_corpus(store, model, shard_rows=50, embedder=ray_embedder(worker, address))
    found["shards"] = len(shards.paths)
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
