"""Share results: audit records, strip them of bulk, and pack them into a bundle that others can check.

A bundle is a zip file with `bundle.json` (sealed: name, environment, sha256 of every member), `records/` and
`method/`. The same records, method files and environment give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from erda.benchmark.audit import audit_record, compact_record, record_bytes
from erda.benchmark.records import PREDICTIONS, RECORD, Record, Records, read_records
from erda.benchmark.run.machine import versions
from erda.errors import RecordError, join_faults, one_line
from erda.files import decode_sealed, read_bytes, sealed, write_bytes
from erda.methods import METHODS
from erda.outputs import refuse_overwriting_input
from erda.settings.runs import Run

FORMAT = 1
CONTENTS = "bundle.json"
RECORDS, METHOD = "records", "method"
MOST_UNPACKED = 200_000_000  # bytes of a bundle
PACKED_BY = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file


def audit(found: Records) -> list[str]:
    """Faults of all records of a folder, unreadable ones included."""
    faults = list(found.faults)
    for one in found.found:
        place = one.folder.relative_to(found.directory) if one.folder else one.record.title
        faults += [f"{place}: {fault}." for fault in audit_record(one.record)]
    return faults + _repeated(found.records)


def _repeated(records: Iterable[Record]) -> list[str]:
    """Reject a run that counts twice."""
    names = [one.name for one in fields(Run) if one.name != "device"]
    runs = Counter(json.dumps([getattr(one, name) for name in names], sort_keys=True) for one in records)
    n_repeated = sum(n - 1 for n in runs.values())
    return [f"{n_repeated} of {runs.total()} records repeat the run of another record."] if n_repeated else []


# -- bundles -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bundle:
    """Content of `bundle.json`."""

    format: int
    name: str
    environment: dict[str, Any]  # versions of Python and erda, and every installed package
    members: dict[str, str]  # path in the bundle -> sha256
    seal: str = ""


def pack_bundle(directory: Path, out: Path, *, name: str, method_files: Sequence[Path] = ()) -> Bundle:
    """Audit the records under `directory` and pack them into `out`; raise one `RecordError` with all faults."""
    found = read_records(directory)
    inputs = [one.folder / name for one in found.found if one.folder for name in (RECORD, PREDICTIONS)]
    refuse_overwriting_input(out, *inputs, *method_files)
    compact = {one.folder.relative_to(directory): compact_record(one) for one in found.found if one.folder is not None}
    faults = list(found.faults)
    faults += [f"{place}: {fault}." for place, record in compact.items() for fault in audit_record(record)]
    faults += _repeated(compact.values())
    members = {f"{RECORDS}/{place.as_posix()}/{RECORD}": record_bytes(one) for place, one in compact.items()}
    for path in method_files:
        if f"{METHOD}/{path.name}" in members:
            faults.append(f"{path}: two method files have this name.")
        members[f"{METHOD}/{path.name}"] = read_bytes(path, error=RecordError)
    faults += _unknown_methods(compact.values(), has_files=bool(method_files))
    faults += [
        f"{one_line(place)}: this name cannot be in a bundle; rename it." for place in members if not _is_safe(place)
    ]
    if faults:
        raise RecordError(join_faults([f"{directory}: no bundle was written.", *faults]))
    digests = {place: hashlib.sha256(content).hexdigest() for place, content in sorted(members.items())}
    installed = ((one.metadata["Name"], one.version) for one in metadata.distributions())
    packages = sorted({f"{name}=={version}" for name, version in installed if name}, key=str.lower)
    bundle = Bundle(FORMAT, one_line(name), {**versions(), "packages": packages}, digests)
    head = json.dumps(sealed(bundle), ensure_ascii=False, indent=1).encode() + b"\n"
    write_bytes(out, _zipped({CONTENTS: head, **members}))
    return bundle


def _unknown_methods(records: Iterable[Record], *, has_files: bool) -> list[str]:
    """Reject methods that nobody else can run."""
    own = sorted({one.method for one in records} - set(METHODS.builtin))
    return (
        [f"{one_line(', '.join(own))}: not a method of erda; add its source with --method-file."]
        if own and not has_files
        else []
    )


def _zipped(members: Mapping[str, bytes]) -> bytes:
    """Zip file that depends on nothing but its members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for place in sorted(members):
            about = zipfile.ZipInfo(place, date_time=EPOCH)
            about.compress_type, about.external_attr, about.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            packed.writestr(about, members[place])
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A valid bundle and its records."""

    bundle: Bundle
    records: tuple[Record, ...]
    method_files: tuple[str, ...]


def check_bundle(path: Path) -> CheckedBundle:
    """Check a bundle without executing anything of it; raise one `RecordError` with all faults."""
    members = _unzipped(path)
    about: dict[str, Any] = {"error": RecordError, "remedy": "Pack it again with `erda submit`."}
    bundle = decode_sealed(members.pop(CONTENTS, b"{}"), Bundle, place=f"{path}: {CONTENTS}", **about)
    faults = [] if bundle.format == FORMAT else [f"format {bundle.format}; this version reads format {FORMAT}."]
    digests = {place: hashlib.sha256(content).hexdigest() for place, content in members.items()}
    faults += [
        f"{place}: differs from {CONTENTS}."
        for place in sorted({*digests, *bundle.members})
        if digests.get(place) != bundle.members.get(place)
    ]
    with TemporaryDirectory() as folder:
        for place, content in members.items():
            if place.startswith(f"{RECORDS}/") and not faults:
                write_bytes(Path(folder) / place, content)
        records: tuple[Record, ...] = ()
        if not faults:
            try:
                found = read_records(Path(folder) / RECORDS) if any(Path(folder).iterdir()) else None
            except RecordError as fault:
                raise RecordError(str(fault).replace(folder, str(path))) from None
            records = found.records if found else ()
            faults += [one.replace(folder, str(path)) for one in audit(found)] if found else ["holds no record."]
    files = tuple(place for place in members if place.startswith(f"{METHOD}/"))
    faults += _unknown_methods(records, has_files=bool(files))
    if faults:
        raise RecordError(join_faults([f"{path}: rejected.", *faults]))
    return CheckedBundle(bundle, records, files)


def _unzipped(path: Path) -> dict[str, bytes]:
    content = read_bytes(path, error=RecordError)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            infos = packed.infolist()
            if sum(one.file_size for one in infos) > MOST_UNPACKED:
                raise RecordError(f"{path}: unpacks to more than {MOST_UNPACKED // 1_000_000} MB.")
            unsafe = [one.filename for one in infos if not _is_safe(one.filename) or one.compress_type not in PACKED_BY]
            names = [one.filename for one in infos]
            if unsafe or len(set(names)) < len(names):
                raise RecordError(f"{path}: has unexpected or repeated members: {one_line(', '.join(unsafe or names))}")
            return {one.filename: packed.read(one) for one in infos}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise RecordError(f"{path}: is not a bundle of `erda submit` ({one_line(str(error))}).") from None


def _is_safe(name: str) -> bool:
    """Whether a path may be in a bundle: printable, relative, in its shortest form."""
    parts = name.split("/")
    place = (
        name == CONTENTS
        or (parts[0] == RECORDS and parts[-1] == RECORD and len(parts) > 1)
        or (parts[0] == METHOD and len(parts) == 2)
    )
    return place and name.isprintable() and "\\" not in name and not {"", ".", ".."} & {*parts}
