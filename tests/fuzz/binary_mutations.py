"""Mutations of formats that are not text: headers that lie, archives that lead out, bombs, lost columns."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator

import numpy as np

from tests.fuzz.binaries import array_of, meaning, npy
from tests.fuzz.outcome import REFUSED, Case, Expected, reads, reads_or_refused
from tests.fuzz.seeds import Seed
from tests.fuzz.texts import NO_NUMBERS

LIMIT = 4 << 20
"""What a file may unpack to while the cases run; the readers' own limit is a gigabyte."""
BOMB = 6 << 20
"""What the bombs unpack to."""


def mutations(kind: str, seed: Seed, rng: np.random.Generator) -> Iterator[Case]:
    """One case of every kind for this seed, each at a place that ``rng`` draws."""
    names = sorted(name for name in seed.files if "points3D" not in name)
    name = str(rng.choice(names))
    content, same = seed.files[name], reads(seed.baseline)

    def case(mutation: str, changed: bytes, expected: Expected) -> Case:
        return Case(mutation, {**seed.files, name: changed}, expected)

    def meant(mutation: str, changed: bytes) -> Case:
        truth = meaning(kind, seed, {**seed.files, name: changed})
        return case(mutation, changed, REFUSED if truth is None else reads(truth))

    yield Case("unchanged", dict(seed.files), same)
    yield case("empty", b"", REFUSED)
    yield case("noise", rng.bytes(300), REFUSED)
    if kind != "colmap":
        yield case("text", b"1 0 0 0 0 1 0 0 0 0 1 0\n", REFUSED)
        yield case("something behind", content + b"\1\2\3", _behind(kind, seed))
    if kind != "colmap-binary":
        packed = gzip.compress(content)
        yield case("gzip", packed, same)
        yield case("gzip cut", packed[: int(rng.integers(3, len(packed)))], REFUSED)
        yield case("gzip bomb", _packed_zeros(), REFUSED)
        yield case("gzip twice", gzip.compress(packed), REFUSED)
    if kind in ("npy", "panshot", "rds-hq", "comma2k19"):
        yield from _arrays(kind, content, case, meant, rng, same)
    if kind == "npz":
        yield from _archives(content, case, same)
    if kind == "rds-hq.tar":
        yield from _tars(content, case, same, rng)
    if kind.startswith("colmap"):
        yield from _models(kind, seed, rng)
    if kind == "argoverse2":
        yield from _feathers(seed, case, rng)


def _behind(kind: str, seed: Seed) -> Expected:
    # A tape may go on behind the end of an archive, and zip files are read from their end.
    return reads_or_refused(seed.baseline) if kind in ("rds-hq.tar", "npz", "argoverse2") else REFUSED


def _packed_zeros() -> bytes:
    return gzip.compress(bytes(BOMB), 1)


def _arrays(
    kind: str,
    content: bytes,
    case: Callable[..., Case],
    meant: Callable[..., Case],
    rng: np.random.Generator,
    same: Expected,
) -> Iterator[Case]:
    array = array_of(content)
    yield case("cut", content[: int(rng.integers(len(content)))], REFUSED)
    yield case("in Fortran's order", npy(np.asfortranarray(array)), same)
    yield case("big-endian", npy(array.astype(">f8")), same)
    yield case("in extended precision", npy(array.astype(np.longdouble)), same)
    yield meant("in single precision", npy(array.astype(np.float32)))
    yield case("complex", npy(array.astype(np.complex128)), REFUSED)
    yield case("truth values", npy(array.astype(bool)), REFUSED)
    yield case("texts", npy(array.astype("U40")), REFUSED)
    yield case("bytes", npy(array.astype("S40")), REFUSED)
    yield case("dates", npy(np.zeros(array.shape, "M8[s]")), REFUSED)
    yield case("records", npy(np.zeros(array.shape, [("a", "<f8")])), REFUSED)
    pickled = io.BytesIO()
    np.save(pickled, array.astype(object), allow_pickle=True)
    yield case("Python objects", pickled.getvalue(), REFUSED)
    yield case("one dimension more", npy(array[None]), REFUSED)
    yield case("no dimension", npy(np.float64(1.0)), REFUSED)
    yield case("no rows", npy(array[:0]), REFUSED)
    yield case("no columns", npy(array[..., :0]), REFUSED)
    yield meant("a row less", npy(array[:-1]))
    yield meant("rows reversed", npy(array[::-1].copy()))
    yield meant("a row twice", npy(np.concatenate([array[:1], array])))
    yield case("a column more", npy(np.concatenate([array, array], axis=-1)), REFUSED)
    if array.ndim == 3:
        mirrored, scaled, turned_over = array.copy(), array.copy(), array.copy()
        mirrored[:, :3, 1] *= -1
        scaled[:, :3, :3] *= 1.01
        turned_over[:, :3, :3] = turned_over[:, :3, :3].transpose(0, 2, 1)
        yield case("mirrored", npy(mirrored), REFUSED)
        yield case("scaled", npy(scaled), REFUSED)
        yield meant("rotations transposed", npy(turned_over))
        yield meant("matrices transposed", npy(array.transpose(0, 2, 1).copy()))
    for value in (np.nan, np.inf, -np.inf, 1e308, 1e200, 5e-324, -0.0, 1.0, 123456789.125):
        changed = array.copy()
        changed[tuple(int(rng.integers(size)) for size in array.shape)] = value
        yield meant(f"a number is {value}", npy(changed))
    data = content[10 + struct.unpack("<H", content[8:10])[0] :]
    shape = array.shape
    for label, descr, claimed in (
        ("more rows", "<f8", (shape[0] + 1, *shape[1:])),
        ("fewer rows", "<f8", (shape[0] - 1, *shape[1:])),
        ("a row less than none", "<f8", (-1, *shape[1:])),
        ("2^62 rows", "<f8", (2**62, *shape[1:])),
        ("10^30 rows", "<f8", (10**30, *shape[1:])),
        ("a terabyte", "<f8", (10**12 // 96, *shape[1:])),
        ("half the size", "<f4", shape),
        ("objects", "|O", shape),
        ("nothing", "|V0", shape),
        ("empty texts", "<U0", shape),
        ("no type", "<q9", shape),
        ("a type that runs", "__import__('os').abort()", shape),
    ):
        yield case(
            f"a header of {label}",
            _with_header(data, {"descr": descr, "fortran_order": False, "shape": claimed}),
            REFUSED,
        )
    yield case("a header of words", _with_header(data, "poses"), REFUSED)
    yield case(
        "a header without shape", _with_header(data, {"descr": "<f8", "fortran_order": False}), REFUSED
    )
    yield case("a header of brackets", _raw_header(data, b"(" * 60000), REFUSED)
    yield case(
        "a gigantic header",
        _raw_header(
            data, repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode() + b" " * 60000
        ),
        REFUSED,
    )
    for version in (b"\x02\x00", b"\x03\x00", b"\x09\x09"):
        head = struct.pack("<I", 2**31 - 1)
        yield case(
            f"version {version[0]} with a header of 2 GiB",
            b"\x93NUMPY" + version + head + content[10:],
            REFUSED,
        )
    third = (
        b"\x93NUMPY\x03\x00"
        + struct.pack("<I", 118)
        + _padded({"descr": "<f8", "fortran_order": False, "shape": (10**12, *shape[1:])}, 118)
        + data
    )
    yield case("version 3 of a petabyte", third, REFUSED)


def _header(shape: tuple[int, ...], descr: str = "<f8") -> dict[str, object]:
    return {"descr": descr, "fortran_order": False, "shape": shape}


def _padded(header: object, size: int) -> bytes:
    return repr(header).encode().ljust(size - 1) + b"\n"


def _with_header(data: bytes, header: object) -> bytes:
    return _raw_header(data, _padded(header, max(118, len(repr(header)) + 1)))


def _raw_header(data: bytes, header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def zipped(parts: list[tuple[str, bytes]], *, method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, part in parts:
            archive.writestr(zipfile.ZipInfo(name), part, compress_type=method)
    return stream.getvalue()


def _archives(content: bytes, case: Callable[..., Case], same: Expected) -> Iterator[Case]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    poses, rest = parts["T_world_cam.npy"], [item for item in parts.items() if item[0] != "T_world_cam.npy"]
    items = list(parts.items())
    for label, method in (
        ("deflate", zipfile.ZIP_DEFLATED),
        ("bzip2", zipfile.ZIP_BZIP2),
        ("lzma", zipfile.ZIP_LZMA),
    ):
        yield case(f"packed by {label}", zipped(items, method=method), same)
    yield case("members in another order", zipped(items[::-1]), same)
    yield case("another member", zipped([*items, ("notes.txt", b"x"), ("depth.npy", npy(np.zeros(3)))]), same)
    yield case(
        "a member outside its folder", zipped([*items, ("../../up.npy", poses), ("/etc/up.npy", poses)]), same
    )
    yield case("the poses outside their folder", zipped([*rest, ("../T_world_cam.npy", poses)]), REFUSED)
    yield case("a folder", zipped([*items, ("folder/", b"")]), same)
    yield case("cut", content[: len(content) * 2 // 3], REFUSED)
    yield case("cut by a byte", content[:-1], REFUSED)
    with np.testing.suppress_warnings() as sup:
        sup.filter(UserWarning)
        twice = zipped([*items, ("T_world_cam.npy", npy(array_of(poses)[::-1].copy()))])
    yield case("the poses twice", twice, REFUSED)
    yield case("no members", zipped([]), REFUSED)
    yield case("no arrays", zipped([("a.txt", b"1")]), REFUSED)
    yield case("poses that are none", zipped([*rest, ("T_world_cam.npy", b"1 2 3")]), REFUSED)
    yield case("poses that are objects", zipped([*rest, ("T_world_cam.npy", _pickled(poses))]), REFUSED)
    bomb = npy(np.zeros(BOMB // 8))
    yield case("a bomb", zipped([*items, ("depth.npy", bomb)], method=zipfile.ZIP_DEFLATED), REFUSED)
    halves = [(f"{i}.npy", npy(np.zeros(BOMB // 32))) for i in range(4)]
    yield case("a bomb in parts", zipped([*items, *halves], method=zipfile.ZIP_DEFLATED), REFUSED)
    yield case("a zip in a zip", zipped([("T_world_cam.npy", content)]), REFUSED)
    at = content.index(b"PK\x01\x02")
    for label, place, value in (
        ("encrypted", at + 8, b"\1\0"),
        ("of an unknown method", at + 10, b"\x63\0"),
        ("of another size", at + 24, struct.pack("<I", 10)),
        ("of 4 GiB", at + 24, struct.pack("<I", 2**32 - 2)),
        ("of another sum", at + 16, b"\0\0\0\0"),
        ("at another place", at + 42, struct.pack("<I", 999)),
    ):
        yield case(f"a member {label}", content[:place] + value + content[place + len(value) :], REFUSED)
    times = ("times.npy", npy(np.array([2.0, 1.0])))
    others = [item for item in items if item[0] != "times.npy"]
    yield case("too few times", zipped([*others, ("times.npy", npy(np.zeros(0)))]), REFUSED)
    yield case("times that are texts", zipped([*others, ("times.npy", npy(np.array(["a"])))]), REFUSED)
    yield case("times that are no array", zipped([*others, ("times.npy", npy(np.float64(1)))]), REFUSED)
    yield case("times that fall", zipped([*others, times]), REFUSED)
    for name, wrong in (
        ("convention", "w2c"),
        ("unit", "feet"),
        ("camera", "{"),
        ("camera", "[1]"),
        ("pose_policy", "middle"),
    ):
        kept = [item for item in items if item[0] != f"{name}.npy"]
        yield case(f"{name} {wrong}", zipped([*kept, (f"{name}.npy", npy(np.asarray(wrong)))]), REFUSED)


def _pickled(content: bytes) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array_of(content).astype(object), allow_pickle=True)
    return stream.getvalue()


def _tars(
    content: bytes, case: Callable[..., Case], same: Expected, rng: np.random.Generator
) -> Iterator[Case]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        parts = [(member, archive.extractfile(member).read()) for member in archive]

    def tar(
        *extra: tuple[tarfile.TarInfo, bytes], kept: int | None = None, form: int = tarfile.PAX_FORMAT
    ) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
            for member, part in [*parts[:kept], *extra]:
                archive.addfile(member, io.BytesIO(part))
        return stream.getvalue()

    def member(name: str, part: bytes = b"", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
        made = tarfile.TarInfo(name)
        made.size = len(part)
        for key, value in attributes.items():
            setattr(made, key, value)
        return made, part

    matrix, pose = parts[0][1], "90.vehicle_pose.npy"
    used = sum(512 + -(-member.size // 512) * 512 for member, _ in parts)
    yield case("cut", content[: int(rng.integers(used))], REFUSED)
    yield case("cut between members", content[: used - 1024] if len(parts) > 1 else b"", REFUSED)
    yield case("without its end", content[:used], REFUSED)
    yield case("with a short end", content[: used + 512], same)
    for label, form in (("ustar", tarfile.USTAR_FORMAT), ("GNU", tarfile.GNU_FORMAT)):
        yield case(label, tar(form=form), same)
    yield case("a text among them", tar(member("notes.txt", b"x")), same)
    yield case("a folder among them", tar(member("folder", type=tarfile.DIRTYPE)), same)
    for name in (f"../{pose}", f"/{pose}", f"a/../../{pose}", "../notes.txt", "/etc/passwd"):
        yield case(f"a member {name}", tar(member(name, matrix)), REFUSED)
    for label, kind, link in (
        ("a link", tarfile.SYMTYPE, "/etc/passwd"),
        ("a link up", tarfile.SYMTYPE, "../../x"),
        ("a hard link", tarfile.LNKTYPE, parts[0][0].name),
        ("a pipe", tarfile.FIFOTYPE, ""),
        ("a device", tarfile.CHRTYPE, ""),
    ):
        yield case(label, tar(member(pose, type=kind, linkname=link)), REFUSED)
    yield case("a member twice", tar(member(parts[0][0].name, matrix)), REFUSED)
    yield case("a member twice by its number", tar(member("8.other.vehicle_pose.npy", matrix)), REFUSED)
    yield case("a large member", tar(member(pose, bytes(1 << 17))), REFUSED)
    yield case("a member of another shape", tar(member(pose, npy(np.eye(3)))), REFUSED)
    yield case("a member that is empty", tar(member(pose)), REFUSED)
    yield case("long names", tar(member("x" * 3000 + ".txt", b"x")), same)
    at = 512 + -(-parts[0][0].size // 512) * 512 if len(parts) > 1 else 0
    yield case("a damaged header", content[: at + 3] + b"?" + content[at + 4 :], REFUSED)
    for size in (b"77777777777\0", b"-0000000001\0", b"\x80" + b"\xff" * 11):
        header = bytearray(content[:512])
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = f"{sum(header):06o}\0 ".encode()
        yield case(f"a size of {size[:3]!r}", bytes(header) + content[512:], REFUSED)


def _feathers(seed: Seed, case: Callable[..., Case], rng: np.random.Generator) -> Iterator[Case]:
    import pyarrow as pa
    from pyarrow import feather

    (content,) = seed.files.values()
    table = feather.read_table(io.BytesIO(content))

    def written(changed: "pa.Table", **options: object) -> bytes:
        stream = io.BytesIO()
        feather.write_feather(changed, stream, **{"compression": "uncompressed", **options})
        return stream.getvalue()

    same = reads(seed.baseline)
    yield case("cut", content[: int(rng.integers(len(content)))], REFUSED)
    for packing in ("lz4", "zstd"):
        yield case(f"packed by {packing}", written(table, compression=packing), same)
    yield case("in parts", written(table, chunksize=1), same)
    yield case("columns in another order", written(table.select(table.column_names[::-1])), same)
    yield case("another column", written(table.append_column("speed", [[1.0] * len(table)])), same)
    yield case("rows reversed", written(table.take(list(range(len(table)))[::-1])), same)
    yield case("a row twice", written(pa.concat_tables([table, table.slice(0, 1)])), same)
    yield case("no rows", written(table.slice(0, 0)), REFUSED)
    for name in table.column_names:
        at = table.column_names.index(name)
        yield case(f"no {name}", written(table.remove_column(at)), REFUSED)
        texts_ = pa.array([str(value) for value in table.column(name).to_pylist()])
        yield case(f"{name} as text", written(table.set_column(at, name, texts_)), REFUSED)
        nothing = pa.array([None] * len(table), table.column(name).type)
        yield case(f"{name} null", written(table.set_column(at, name, nothing)), REFUSED)
        if name != "timestamp_ns":
            for value in (float("nan"), float("inf")):
                yield case(
                    f"{name} {value}",
                    written(table.set_column(at, name, pa.array([value] * len(table)))),
                    REFUSED,
                )
    late = table.column("timestamp_ns").to_numpy()
    huge = pa.array(late.astype(np.uint64) + np.uint64(2**63), pa.uint64())
    yield case("stamps beyond 63 bits", written(table.set_column(0, "timestamp_ns", huge)), REFUSED)
    if len(table) > 1:
        equal = pa.array([int(late[0])] * len(table))
        different = len({tuple(row.values()) for row in table.drop_columns("timestamp_ns").to_pylist()}) > 1
        yield case(
            "equal stamps",
            written(table.set_column(0, "timestamp_ns", equal)),
            REFUSED if different else same,
        )


def _models(kind: str, seed: Seed, rng: np.random.Generator) -> Iterator[Case]:
    ending = "txt" if kind == "colmap" else "bin"
    images, cameras = f"sparse/images.{ending}", f"sparse/cameras.{ending}"
    same = reads(seed.baseline)

    def case(mutation: str, expected: Expected, **changed: bytes) -> Case:
        files = dict(seed.files)
        for name, content in changed.items():
            files[f"sparse/{name}.{ending}"] = content
        return Case(mutation, files, expected)

    def meant(mutation: str, content: bytes) -> Case:
        truth = meaning(kind, seed, {images: content})
        return case(mutation, REFUSED if truth is None else reads(truth), images=content)

    content, lenses = seed.files[images], seed.files[cameras]
    without = {name: part for name, part in seed.files.items() if name != cameras}
    yield Case("no cameras", without, same)
    yield Case("no images", {name: part for name, part in seed.files.items() if name != images}, REFUSED)
    yield case("other points", same, points3D=b"rubbish")
    yield case("cameras cut", REFUSED, cameras=lenses[: len(lenses) - 20])
    if kind == "colmap":
        lines = content.decode().split("\n")
        first = next(index for index, line in enumerate(lines) if line and line[0] != "#")
        for label, end in (("CR LF", "\r\n"), ("CR", "\r")):
            yield case(label, same, images=end.join(lines).encode())
        yield case("a form feed in a comment", same, images=b"# a\x0c1 2\xe2\x80\xa83\n" + content)
        yield case("points", same, images=_with_points(lines, first).encode())
        yield case(
            "two points of three numbers and one",
            REFUSED,
            images=content.replace(b".png\n\n", b".png\n1 2\n", 1),
        )
        for word in NO_NUMBERS:
            if " " not in word:
                words = lines[first].split()
                words[int(rng.integers(1, 8))] = word
                changed = [*lines[:first], " ".join(words), *lines[first + 1 :]]
                yield case(f"a number is {word[:12]}", REFUSED, images="\n".join(changed).encode())
        for column in range(8):
            words = lines[first].split()
            yield meant(
                "a column less",
                "\n".join(
                    [*lines[:first], " ".join(words[:column] + words[column + 1 :]), *lines[first + 1 :]]
                ).encode(),
            )
        yield case("a camera of another size", same, cameras=lenses.replace(b"PINHOLE 1280", b"PINHOLE 0"))
        yield case("an unknown camera model", same, cameras=lenses.replace(b"PINHOLE", b"MIRROR"))
        yield case("a width in words", REFUSED, cameras=lenses.replace(b"1280", b"12_80"))
        return
    for value in (np.nan, np.inf, 1e308, 1e200, -0.0, 1.0):
        at = 12 + 8 * int(rng.integers(7))
        yield meant(f"a number is {value}", content[:at] + struct.pack("<d", value) + content[at + 8 :])
    for count in (0, 2**63, 2**64 - 1, len(seed.baseline.R_world_cam) + 1):
        yield case(f"a count of {count}", REFUSED, images=struct.pack("<Q", count) + content[8:])
        yield case(f"a count of {count} cameras", REFUSED, cameras=struct.pack("<Q", count or 5) + lenses[8:])
    yield case("a model that is unknown", REFUSED, cameras=lenses[:12] + struct.pack("<i", 99) + lenses[16:])
    end = content.index(b"\0", 8 + 64)
    yield case("a name that is no text", REFUSED, images=content[: end - 1] + b"\xff" + content[end:])
    for points in (1, 2**40, 2**64 - 1):
        yield case(
            f"{points} points",
            REFUSED,
            images=content[: end + 1] + struct.pack("<Q", points) + content[end + 9 :],
        )
    yield case(
        "a point", same, images=content[: end + 1] + struct.pack("<Q", 1) + bytes(24) + content[end + 9 :]
    )
    yield case("cut", REFUSED, images=content[: int(rng.integers(len(content)))])


def _with_points(lines: list[str], first: int) -> str:
    """Two points of each image on the line behind it, which the writer leaves empty."""
    changed = list(lines[:-1])
    for index in range(first + 1, len(changed), 2):
        changed[index] = "1.5 2.5 -1 3 4 7"
    return "\n".join(changed) + "\n"
