"""`build ARCHIVE` follows the Dockerfile on that root file system. `walk` starts the variants."""

import os
import pathlib
import sys

from image import dockerfile, walk

cache, scratch, binaries = (pathlib.Path(os.environ[name]) for name in ("IMAGE_CACHE", "SCRATCH", "BIN"))
stage = dockerfile.final_stage(pathlib.Path(os.environ["ROOT"], "Dockerfile").read_text())
image = dockerfile.image_of(stage, scratch / "root")
if sys.argv[1] == "build":
    dockerfile.build(stage, pathlib.Path(sys.argv[2]), cache, image.root, binaries)
    sys.exit(dockerfile.trial_status(image))
walk.walk(image, scratch)
