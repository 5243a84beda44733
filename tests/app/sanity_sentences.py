"""Sanity sentences: three relations taught by five sentences each, true questions, and some that hold none of them.

Written by hand for this repository in November 2026, after the complaint that "[[Apple]] hired {{Tim Cook}} as CEO." is
answered with "founded by". They come from no dataset. One constant of the operating point (`FEW_RELATIONS`) follows
`TRUE` and `NOTHING_HOLDS`, so these guard against regressions only. `FRESH_TRUE` and `FRESH_NOTHING_HOLDS` were written
before the operating point that they check, and nothing was adjusted to them.
"""

from __future__ import annotations

TAUGHT = {
    "founded by": [
        "[[Microsoft]] was founded by {{Bill Gates}} and Paul Allen in 1975.",
        "[[Amazon]] was started by {{Jeff Bezos}} in his garage.",
        "{{Enzo Ferrari}} founded [[Ferrari]] in Maranello.",
        "[[IKEA]], founded by {{Ingvar Kamprad}} in 1943, sells furniture.",
        "The newspaper [[Le Monde]] was established by {{Hubert Beuve-Mery}} in 1944.",
    ],
    "place of birth": [
        "[[Marie Curie]] was born in {{Warsaw}}.",
        "[[Ada Lovelace]], born in {{London}} in 1815, was a mathematician.",
        "The painter [[Frida Kahlo]] was born in {{Coyoacan}} on 6 July 1907.",
        "Born in {{Ulm}}, [[Albert Einstein]] moved to Munich as a child.",
        "[[Nelson Mandela]] (born in {{Mvezo}}, 18 July 1918) was a politician.",
    ],
    "capital of": [
        "[[Paris]] is the capital of {{France}}.",
        "The capital of {{Japan}} is [[Tokyo]].",
        "[[Canberra]], the capital city of {{Australia}}, lies inland.",
        "{{Kenya}} has its capital in [[Nairobi]].",
        "Since 1991 [[Berlin]] has been the capital of {{Germany}} again.",
    ],
}
TRUE = {
    "[[Apple]] was founded by {{Steve Jobs}}.": "founded by",
    "[[Tesla]] was founded by {{Martin Eberhard}} and Marc Tarpenning.": "founded by",
    "{{Henry Ford}} founded the [[Ford Motor Company]] in 1903.": "founded by",
    "[[Barack Obama]] was born in {{Honolulu}}, Hawaii.": "place of birth",
    "The singer [[Adele]] was born in {{Tottenham}} in 1988.": "place of birth",
    "[[Madrid]] is the capital of {{Spain}}.": "capital of",
    "[[Ottawa]] is the capital city of {{Canada}}.": "capital of",
    "The capital of {{Peru}} is [[Lima]].": "capital of",
}
NOTHING_HOLDS = [
    "[[Apple]] hired {{Tim Cook}} as CEO.",
    "[[Microsoft]] bought {{GitHub}} in 2018.",
    "[[Google]] opened an office in {{Dublin}}.",
    "[[Amazon]] sued {{Apple}} over a patent.",
    "[[Barack Obama]] visited {{Berlin}} in 2008.",
    "[[Angela Merkel]] met {{Emmanuel Macron}} on Friday.",
    "[[Marie Curie]] died in {{Passy}}.",
    "[[Albert Einstein]] taught at {{Princeton}} until 1945.",
    "[[Paris]] hosted the Olympic Games for {{France}} in 2024.",
    "[[Lyon]] is a large city in {{France}}.",
    "[[Tokyo]] lies on the island of {{Honshu}}.",
    "[[Germany]] borders {{Poland}}.",
    "[[Spain]] beat {{England}} in the final.",
    "[[Adele]] released the album {{25}}.",
    "[[Pablo Picasso]] painted {{Guernica}}.",
    "[[Leonardo DiCaprio]] starred in {{Titanic}}.",
    "[[Titanic]] was directed by {{James Cameron}}.",
    "[[The Hobbit]] was written by {{J. R. R. Tolkien}}.",
    "[[Serena Williams]] defeated {{Maria Sharapova}} in London.",
    "[[Lionel Messi]] plays for {{Inter Miami}}.",
    "[[Lionel Messi]] moved to {{Barcelona}} at the age of 13.",
    "[[Volkswagen]] is headquartered in {{Wolfsburg}}.",
    "[[Volkswagen]] owns {{Audi}}.",
    "[[Toyota]] competes with {{Honda}}.",
    "[[Netflix]] raised its prices in {{Canada}}.",
    "[[Boeing]] delivered ten aircraft to {{Ryanair}}.",
    "[[Elon Musk]] criticised {{Mark Zuckerberg}} on Monday.",
    "[[Prince William]] is married to {{Kate Middleton}}.",
    "[[Charles III]] is the father of {{Prince William}}.",
    "[[Jane Austen]] lived in {{Bath}} for five years.",
    "[[Mozart]] travelled to {{Prague}} in 1787.",
    "[[The Danube]] flows through {{Vienna}}.",
    "[[Mount Fuji]] is the highest mountain in {{Japan}}.",
    "[[Swahili]] is spoken in {{Kenya}}.",
    "[[Brazil]] exports coffee to {{Italy}}.",
    "[[Oxfam]] sent aid to {{Yemen}}.",
    "[[Harvard]] awarded a degree to {{Bill Gates}}.",
    "[[Samsung]] replaced its chairman {{Lee Kun-hee}}.",
    "[[Satya Nadella]] runs {{Microsoft}}.",
    "[[Sydney]] is the largest city in {{Australia}}.",
]
FRESH_TRUE = {
    "[[Spotify]] was founded by {{Daniel Ek}} in Stockholm.": "founded by",
    "[[Wendy's]] was founded by {{Dave Thomas}}.": "founded by",
    "The charity [[Amref]] was set up by {{Michael Wood}} and two colleagues.": "founded by",
    "[[Greta Garbo]] was born in {{Stockholm}} in 1905.": "place of birth",
    "[[Diego Maradona]], who was born in {{Lanus}}, played for Napoli.": "place of birth",
    "[[Oslo]] is the capital of {{Norway}}.": "capital of",
    "[[Hanoi]] became the capital of {{Vietnam}}.": "capital of",
    "{{Morocco}}'s capital is [[Rabat]].": "capital of",
}
FRESH_NOTHING_HOLDS = [
    "[[Nokia]] sold its phone division to {{Microsoft}}.",
    "[[Intel]] appointed {{Pat Gelsinger}} as chief executive.",
    "[[Disney]] fired {{Bob Chapek}} in November.",
    "[[Jack Dorsey]] resigned from {{Twitter}}.",
    "[[Sony]] is suing {{Nintendo}} in California.",
    "[[Frederic Chopin]] is buried in {{Paris}}.",
    "[[Vincent van Gogh]] moved to {{Arles}} in 1888.",
    "[[Charles Darwin]] studied in {{Edinburgh}}.",
    "[[Winston Churchill]] gave a speech in {{Zurich}}.",
    "[[Taylor Swift]] cancelled her concert in {{Vienna}}.",
    "[[Milan]] is an important city in {{Italy}}.",
    "[[Istanbul]] is the most populous city of {{Turkey}}.",
    "[[Geneva]] lies near the border with {{France}}.",
    "[[Portugal]] exports wine to {{Angola}}.",
    "[[Hungary]] joined {{NATO}} in 1999.",
    "[[Emma Watson]] plays {{Hermione}} in the films.",
    "[[Usain Bolt]] beat {{Justin Gatlin}} by a hundredth of a second.",
    "[[Frank Lloyd Wright]] designed {{Fallingwater}}.",
    "[[Penicillin]] was discovered by {{Alexander Fleming}}.",
    "[[Guernica]] was painted by {{Pablo Picasso}}.",
]
