"""English pronouns that refer to an entity, with the type of that entity if it is certain."""

from __future__ import annotations

PERSON = "PERSON"
_OF_A_PERSON = "I me my mine he him his she her hers who whom we us our ours myself himself herself ourselves"
_OF_ANYTHING = "it its they them their theirs which whose that this these those one itself themselves you your yours"
PRONOUNS: dict[str, str | None] = {
    **dict.fromkeys(_OF_A_PERSON.lower().split(), PERSON),
    **dict.fromkeys(_OF_ANYTHING.split()),
}


def is_pronoun(name: str) -> bool:
    """Return whether a mention is a pronoun and not a name.

    >>> is_pronoun("He"), is_pronoun("IT"), is_pronoun("US"), is_pronoun("Hershey")
    (True, False, False, False)
    """
    return name.lower() in PRONOUNS and (name == name.lower() or name == name.capitalize())
