"""Having an image's root file system: fetched and unpacked anew, or there already."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping

from bench.measure import Subject
from bench.subjects import Place, call, command, quietly, tool, variables
from coopfile.rootfs.disk import sync
from coopfile.rootfs.tree import remove_tree


def kept(place: Place, reference: str) -> tuple[tuple[str, Callable[[Place], Subject]], ...]:
    """Return what is measured where an image is there: its run, and an init with nothing to do."""
    project = os.path.join(place.fresh, "kept")

    def made(_: Place) -> Mapping[str, str]:
        given = {**variables(place), "XDG_DATA_HOME": os.path.join(place.fresh, "kept-data")}
        if not os.path.isdir(project):
            _project(project, reference, given)
            call(command(), "init", "-q", "-C", project, environment=given)
        return given

    def run(_: Place) -> Subject:
        return Subject("image", "coop run, on image", (command(), "run", "--", "true"), project, made(place))

    def init(_: Place) -> Subject:
        return Subject("init", "coop init, all there", (command(), "init", "-q"), project, made(place))

    return ("image", run), ("init", init)


def pulls(
    place: Place, reference: str, layers: tuple[str, ...]
) -> tuple[tuple[str, Callable[[Place], Subject]], ...]:
    """Return what is compared for an image: each begins with nothing of it.

    What the one before has left to be written is on disk by then: who syncs would wait for that, too.
    """
    fresh = place.fresh

    def coop(place: Place) -> Subject:
        project, data = os.path.join(fresh, "pulled"), os.path.join(fresh, "pulled-data")
        given = {**variables(place), "XDG_DATA_HOME": data}

        def reset() -> None:
            for path in (os.path.join(data, "coop", "rootfs"), os.path.join(project, "Coopfile.lock")):
                with contextlib.suppress(FileNotFoundError):
                    remove_tree(path)
            sync(fresh)

        shutil.rmtree(project, ignore_errors=True)
        _project(project, reference, given)
        return Subject("coop", "coop init", (command(), "init", "-q"), project, given, reset)

    def podman(place: Place) -> Subject:
        given = variables(place)
        common = [tool("podman"), "--root", os.path.join(fresh, "podman")]
        common += ["--runroot", os.path.join(fresh, "podman-run"), "--storage-driver", "overlay"]
        argv = (*common, "pull", "--quiet", "--tls-verify=false", reference)

        def reset() -> None:
            call(*common, "rmi", "--all", "--force", environment=given)
            sync(fresh)

        place.cleanup.callback(quietly, "umount", os.path.join(fresh, "podman", "overlay"))
        return Subject("podman", "podman pull", argv, fresh, given, reset)

    def tar(place: Place) -> Subject:
        target = os.path.join(fresh, "tar")
        script = 'for layer; do tar -C "$0" -xzf "$layer" || exit; done'
        argv = (tool("sh"), "-c", script, target, *layers)

        def reset() -> None:
            with contextlib.suppress(FileNotFoundError):
                remove_tree(target)
            os.mkdir(target)
            sync(fresh)

        tool("tar"), tool("gzip")
        return Subject("tar", "tar -xz", argv, fresh, variables(place), reset)

    return ("tar", tar), ("podman", podman), ("coop", coop)


def _project(directory: str, reference: str, given: Mapping[str, str]) -> None:
    os.mkdir(directory)
    with open(os.path.join(directory, "Coopfile"), "w", encoding="utf-8") as file:
        file.write(f'coop = 1\n[base]\nimage = "{reference}"\n')
    call(command(), "allow", "-q", "-C", directory, environment=given)
