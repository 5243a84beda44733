"""The methods by name: one file a method, one visible table."""

from __future__ import annotations

from erda.errors import SettingsError, unknown_name
from erda.methods.base import Method
from erda.methods.cpl import Cpl
from erda.methods.emar import Emar
from erda.methods.emr import Emr
from erda.methods.erda import Erda
from erda.methods.idlvq import IdlvqC
from erda.methods.posterior import Posterior, PosteriorTuned
from erda.methods.sckd import Sckd
from erda.methods.sequential import Joint, SeqRun

METHODS: dict[str, type[Method]] = {
    "erda": Erda,
    "seqrun": SeqRun,
    "joint": Joint,
    "emr": Emr,
    "emar": Emar,
    "idlvq-c": IdlvqC,
    "sckd": Sckd,
    "cpl": Cpl,
    "posterior": Posterior,
    "posterior-tuned": PosteriorTuned,
}
DEFAULT_METHOD = Posterior.name


def find_method(name: str) -> type[Method]:
    """The method of that name."""
    if name not in METHODS:
        raise SettingsError(unknown_name("method", name, METHODS))
    return METHODS[name]
