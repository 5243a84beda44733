"""Label Studio's ML-backend protocol."""

from toy_server import Served

CONFIG = '<View><Labels name="ner" toName="doc"><Label value="ORG"/></Labels><Text value="$body" name="doc"/></View>'


def test_tasks_get_regions_and_relations(served: Served) -> None:
    assert served.post("/setup", {"project": "1.2", "schema": CONFIG}) == {"model_version": "erda-2"}
    task = {"id": 1, "data": {"body": "SpaceX was founded by Elon ."}}
    drawn = [{"value": {"start": 0, "end": 6, "labels": ["ORG"]}}, {"value": {"start": 22, "end": 26}}, {"type": "x"}]
    tasks = [task | {"annotations": [{"result": drawn}]}, task, {"data": {"body": 3}}, {"data": {"text": "no body"}}]
    found = served.post("/predict", {"tasks": tasks, "label_config": CONFIG})
    assert found["model_version"] == "erda-2"
    first, second, *empty = found["results"]
    head, tail, relation = first["result"]
    assert (head["from_name"], head["to_name"], head["type"]) == ("ner", "doc", "labels")
    assert head["value"] == {"start": 0, "end": 6, "text": "SpaceX", "labels": ["ORG"]}
    assert (relation["from_id"], relation["to_id"], relation["labels"]) == (head["id"], tail["id"], ["founded by"])
    assert {one["value"]["text"] for one in second["result"] if one["type"] == "labels"} == {"SpaceX", "Elon"}
    assert [one["result"] for one in empty] == [[], []]
