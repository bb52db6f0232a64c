"""Follows the final stage of the Dockerfile in a root file system.

It knows the instructions that the Dockerfile uses. Another one is an error, so that none is silently ignored.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

# Time limits in seconds for copying a root file system, and for an instruction that fetches packages.
COPY_S, RUN_S = 600, 1800
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclasses.dataclass
class Image:
    """A root file system, and how containers start in it."""

    root: pathlib.Path
    env: dict = dataclasses.field(default_factory=lambda: {"PATH": PATH})
    user: str = "root"
    directory: str = "/"
    entrypoint: list = dataclasses.field(default_factory=list)
    command: list = dataclasses.field(default_factory=list)


def final_stage(text):
    """The instructions after the last FROM, as pairs of keyword and rest."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = [line.strip().split(None, 1) for line in joined.splitlines() if line.strip()]
    last = max(at for at, (keyword, _) in enumerate(found) if keyword == "FROM")
    return [(keyword, rest.strip()) for keyword, rest in found[last + 1 :]]


def account(root, user):
    """The uid, the gid and the home of a user, from the image's own files."""
    for line in pathlib.Path(root, "etc/passwd").read_text().splitlines():
        name, _, uid, gid, _, home, _ = line.split(":")
        if user in (name, uid):
            return int(uid), int(gid), home
    raise SystemExit(f"the image has no user {user}")


def start(root, argv, *, env, user, directory="/", **options):
    """Starts a program in the root file system, as Docker does: HOME is the user's."""
    uid, gid, home = account(root, user)

    def enter():
        os.chroot(root)
        os.chdir(directory)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)

    return subprocess.Popen(argv, env={"HOME": home, **env}, preexec_fn=enter, **options)


def metadata(image, keyword, rest):
    """Applies an instruction that changes no file; false for any other."""
    if keyword == "ENV":
        image.env.update(pair.split("=", 1) for pair in shlex.split(rest))
    elif keyword == "USER":
        image.user = rest
    elif keyword == "WORKDIR":
        image.directory = rest
    elif keyword == "ENTRYPOINT":
        image.entrypoint = json.loads(rest)
    elif keyword == "CMD":
        image.command = json.loads(rest)
    elif keyword not in ("EXPOSE", "LABEL"):
        return False
    return True


def follow(image, instructions, binaries):
    for keyword, rest in instructions:
        print(f"{keyword} {rest}", file=sys.stderr, flush=True)
        if metadata(image, keyword, rest):
            continue
        if keyword == "RUN":
            proxy = {name: os.environ[name] for name in ("http_proxy", "https_proxy", "no_proxy") if name in os.environ}
            argv = json.loads(rest) if rest.startswith("[") else ["/bin/sh", "-c", rest]
            ran = start(
                image.root, argv, env={**image.env, **proxy}, user=image.user, directory=image.directory,
                stdin=subprocess.DEVNULL, stdout=sys.stderr)
            try:
                ran.wait(RUN_S)
            except subprocess.TimeoutExpired:
                ran.kill()
                raise SystemExit(f"RUN {rest}: not within {RUN_S} s")
            if ran.returncode:
                raise SystemExit(f"RUN {rest}: status {ran.returncode}")
        elif keyword == "COPY" and rest.startswith("--from=build "):
            *sources, target = rest.split()[1:]
            for source in map(pathlib.PurePosixPath, sources):
                assert source.is_relative_to("/src/target/dist"), f"COPY of {source}: only binaries are copied"
                shutil.copy(binaries / source.name, pathlib.Path(image.root, target.lstrip("/"), source.name))
        else:
            raise SystemExit(f"scripts/outside/image does not know this instruction: {keyword} {rest}")


def build(stage, archive, cache, root, binaries):
    """Follows the stage. What comes before the first COPY does not depend on the binaries, so its result is cached."""
    first = next(at for at, (keyword, _) in enumerate(stage) if keyword == "COPY")
    layer, mark = cache / "layer", cache / "layer.of"
    of = hashlib.sha256(repr((stage[:first], archive.stat().st_mtime)).encode()).hexdigest()
    if not mark.is_file() or mark.read_text() != of:
        mark.unlink(missing_ok=True)
        shutil.rmtree(layer, ignore_errors=True)
        layer.mkdir()
        subprocess.run(["tar", "-C", layer, "-xpf", archive], check=True, timeout=COPY_S)
        # As in every container: the machine's name servers.
        shutil.copy("/etc/resolv.conf", layer / "etc/resolv.conf")
        follow(Image(layer), stage[:first], binaries)
        mark.write_text(of)
    subprocess.run(["cp", "-a", layer, root], check=True, timeout=COPY_S)
    image = image_of(stage[:first], root)
    follow(image, stage[first:], binaries)


def image_of(stage, root):
    """The image of the stage, whose files are already in `root`."""
    image = Image(root)
    for keyword, rest in stage:
        metadata(image, keyword, rest)
    return image


def trial_status(image):
    """Starts the image's program with `--version`. Returns the exit status for the build: 0 when the program runs, 75
    when it was linked on a machine with a newer libc than the image's, and 1 after any other failure."""
    process = start(
        image.root, [*image.entrypoint, "--version"], env=image.env, user=image.user,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit("the image's program did not print its version within 60 s")
    if process.returncode == 0:
        return 0
    print(output, file=sys.stderr)
    return 75 if "GLIBC_" in output else 1
