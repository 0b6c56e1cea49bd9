#!/usr/bin/env python3
"""Writes a container image as a docker-archive tar, from a static busybox or from any root folder.

`ctr images import`, `docker load` and `kind load image-archive` take the result. Needs nothing but Python, because the
machine that the images are for may have no Docker and no registry. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import platform
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = "1970-01-01T00:00:00Z"
SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> None:
    """Entry point; see `--help`."""
    arguments = _parser().parse_args()
    if arguments.source == "busybox":
        with tempfile.TemporaryDirectory(prefix="kruise-probe-image-") as folder:
            root = Path(folder)
            _make_busybox_root(root, arguments.binary)
            _write_image(arguments, root)
    else:
        _write_image(arguments, arguments.root)


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("output", type=Path, help="the tar file to write")
    shared.add_argument("name", help="the image's name and tag, as in repository:tag")
    shared.add_argument(
        "--entrypoint", type=json.loads, default=[], help="JSON list (default: none)"
    )
    shared.add_argument(
        "--command",
        type=json.loads,
        default=["/bin/sh"],
        help="JSON list",
    )
    shared.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
    )
    shared.add_argument("--user", default="", help="user or uid[:gid] (default: root)")
    shared.add_argument("--workdir", default="/")

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sources = parser.add_subparsers(dest="source", required=True)
    busybox = sources.add_parser(
        "busybox", parents=[shared], help="every busybox applet, and nothing else"
    )
    busybox.add_argument(
        "--binary", type=Path, default=Path("/bin/busybox"), help="a static busybox"
    )
    folder = sources.add_parser(
        "root",
        parents=[shared],
        help="the content of a folder",
    )
    folder.add_argument(
        "--root",
        type=Path,
        required=True,
        help="the image's root",
    )
    return parser


def _make_busybox_root(root: Path, binary: Path) -> None:
    program = binary.read_bytes()
    # A program that needs a dynamic loader contains its name, and the image has no loader.
    if b"/ld-linux" in program or b"/ld-musl" in program:
        raise SystemExit(f"{binary} is not static; on Debian: apt-get install busybox-static")
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "root", "var/run", "www"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
    )
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    # Without it, a name lookup in a static program tries to load libraries that do not exist, and takes seconds to fail.
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    target = root / "bin/busybox"
    target.write_bytes(program)
    target.chmod(0o755)
    applets = subprocess.run(
        [binary, "--list"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for applet in applets.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


def _write_image(arguments: argparse.Namespace, root: Path) -> None:
    # A root with Python has hundreds of megabytes, so the layer is written to a file, not to memory.
    with tempfile.NamedTemporaryFile(prefix="kruise-probe-layer-") as layer:
        with tarfile.open(
            fileobj=layer,
            mode="w",
            format=tarfile.PAX_FORMAT,
        ) as tar:
            for path in _walk(root):
                _add(
                    tar,
                    path,
                    path.relative_to(root).as_posix(),
                )
        layer.flush()
        layer.seek(0)
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
        config = json.dumps(_config(arguments, digest), sort_keys=True).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        layer_name = f"{digest}/layer.tar"
        manifest = [
            {
                "Config": config_name,
                "RepoTags": [arguments.name],
                "Layers": [layer_name],
            }
        ]
        with tarfile.open(
            arguments.output,
            "w",
            format=tarfile.PAX_FORMAT,
        ) as archive:
            _add_bytes(
                archive,
                "manifest.json",
                json.dumps(manifest).encode(),
            )
            _add_bytes(archive, config_name, config)
            member = tarfile.TarInfo(layer_name)
            member.size = layer.seek(0, io.SEEK_END)
            layer.seek(0)
            archive.addfile(member, layer)


def _walk(root: Path) -> Iterator[Path]:
    """Everything below the folder in a fixed order, each folder before its content."""
    for path in sorted(root.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    if stat.S_ISSOCK(path.lstat().st_mode):  # a tar cannot contain sockets
        return
    member = tar.gettarinfo(path, arcname=name)
    member.mtime = 0
    # Owners are numbers, because names are those of this machine, not of the image.
    member.uname = member.gname = ""
    if member.isreg():
        with path.open("rb") as content:
            tar.addfile(member, content)
    else:
        tar.addfile(member)


def _config(arguments: argparse.Namespace, digest: str) -> dict[str, Any]:
    return {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": EPOCH,
        "config": {
            "Entrypoint": arguments.entrypoint,
            "Cmd": [] if arguments.entrypoint else arguments.command,
            "Env": [SEARCH_PATH, *arguments.env],
            "User": arguments.user,
            "WorkingDir": arguments.workdir,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": EPOCH}],
    }


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    main()
