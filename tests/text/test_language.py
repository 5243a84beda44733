"""Text that is not English gets one warning; English text gets none."""

import warnings
from pathlib import Path

import pytest

from erda.app.extractor import Extractor
from erda.text.language import NOT_ENGLISH, is_foreign

GERMAN = "[[Angela Merkel]] wurde in {{Hamburg}} geboren."
OTHER_LANGUAGES = (
    "Angela Merkel wurde in Hamburg geboren .",
    "Madrid es la capital de España .",
    "Roma è la capitale d' Italia .",
    "Volvo grundades av Assar Gabrielsson .",
    "Warszawa jest stolicą Polski .",
    "李白 从 长安 出发 去 了 成都 。",
    "Москва - столица России .",
)
ENGLISH = (
    "Tesla was founded by Martin Eberhard .",
    "Borovkov ( Боровков , 6 March 1931 , Moscow ) is a Russian mathematician .",
    "Members included Ken Shorter , Darlene Johnson , Bob Hornery , Mark McManus .",
    "La Boum est un film is shown in Paris and on the coast .",
    "Ann knows Bob",
    "",
)


@pytest.mark.parametrize("text", [*OTHER_LANGUAGES, *ENGLISH])
def test_other_languages_are_foreign(text: str) -> None:
    assert is_foreign(text.split()) == (text in OTHER_LANGUAGES)


def test_there_is_one_warning_and_none_with_another_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of BERT-like weights of another language takes the place of the packaged encoder."""
    pytest.importorskip("torch")
    from tiny_models import build_model

    monkeypatch.setenv("ERDA_TAGGER", "capitals")
    extractor = Extractor.open(tmp_path / "english")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        extractor.teach("born in", ["[[Ann]] was born in {{Oslo}}."])
        extractor.predict("[[Bob]] was born in {{Rome}}.")
        assert not seen
        for _ in range(2):
            extractor.predict([GERMAN, GERMAN])
    assert [str(one.message) for one in seen] == [NOT_ENGLISH]
    with pytest.warns(UserWarning, match="does not look English"):
        assert extractor.extract("李白从长安出发去了成都。").hint.endswith(NOT_ENGLISH)
    model = build_model(tmp_path / "model")
    other = Extractor.open(tmp_path / "german", encoder=str(model.path), encoder_settings={"mode": "markers"})
    with warnings.catch_warnings(action="error"):
        other.teach("born in", [GERMAN])
        assert other.predict(GERMAN).relation == "born in"
        assert other.predict("[[Kepler]] kam in {{Weil der Stadt}} zur Welt.").ranked
