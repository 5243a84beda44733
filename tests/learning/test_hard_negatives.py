"""Entity swaps keep both spans right for mentions of any position and length."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import marked_examples

from erda.learning.losses import hard_negatives, swap_entity
from erda.types import Example, Span
from toy_world import toy_example

WORDS = ["paris", "france", "a", "of", "born", "Qx7", "é", "curie-b", "the", "zürich"]


def mention(example: Example, role: str) -> tuple[str, ...]:
    span: Span = getattr(example, role).span
    return example.tokens[span.start : span.end]


EXAMPLES = marked_examples(st.sampled_from(WORDS))


@given(example=EXAMPLES, donor=EXAMPLES, role=st.sampled_from(["head", "tail"]))
def test_a_swap_changes_only_one_mention(example: Example, donor: Example, role: str) -> None:
    swapped = swap_entity(example, donor, role)
    other = "tail" if role == "head" else "head"
    assert mention(swapped, role) == mention(donor, role)
    assert mention(swapped, other) == mention(example, other)
    for name in ("name", "id", "type"):
        assert getattr(getattr(swapped, role), name) == getattr(getattr(donor, role), name)
    assert (swapped.relation, swapped.source) == (example.relation, example.source)
    assert swapped.id == f"{example.id}~{role}~{donor.id}"

    def rest(one: Example) -> list[str]:
        spans = (one.head.span, one.tail.span)
        return [w for i, w in enumerate(one.tokens) if not any(span.start <= i < span.end for span in spans)]

    assert rest(swapped) == rest(example)
    assert (swapped.head.span < swapped.tail.span) == (example.head.span < example.tail.span)


def test_head_and_tail_are_swapped_with_any_other_example() -> None:
    example = toy_example(0, 0)
    others = [toy_example(1, row) for row in range(4)]
    generator = torch.Generator().manual_seed(0)
    one, two = hard_negatives(example, [example, *others], generator)
    assert (mention(one, "tail"), mention(two, "head")) == (mention(example, "tail"), mention(example, "head"))
    assert one.id.startswith("0-0~head~1-")
    assert two.id.startswith("0-0~tail~1-")
    drawn = {
        negative.id.split("~")[-1]
        for _ in range(50)
        for negative in hard_negatives(example, [*others, example], generator)
    }
    assert drawn == {"1-0", "1-1", "1-2", "1-3"}
    assert hard_negatives(example, [example], generator) == []
