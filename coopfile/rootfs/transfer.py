"""The layers of an image from its source into a directory: one is unpacked while others are on their way."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from coopfile.rootfs.download import blob_path, fetch_all
from coopfile.rootfs.layers import Layer
from coopfile.rootfs.unpack import unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from coopfile.rootfs.model import Descriptor, Image, Source
    from coopfile.rootfs.owners import Owners
    from coopfile.rootfs.progress import Progress
    from coopfile.rootfs.unpack import Unpacked


def transfer(
    source: Source, image: Image, blobs: str, root: str, owners: Owners, progress: Progress
) -> Unpacked:
    """Fetch an image's layers into the directory ``blobs`` and unpack them into ``root``.

    No layer is unpacked before its blob is there, whole and verified. The first error
    closes the source and is raised when every transfer has ended; so it is with KeyboardInterrupt.
    """
    arrived: dict[str, Future[None]] = {layer.digest: Future() for layer in image.layers}
    layers = [
        Layer(blob_path(blobs, layer.digest), diff_id)
        for layer, diff_id in zip(image.layers, image.config.diff_ids, strict=True)
    ]
    awaited = {layer.path: arrived[blob.digest] for layer, blob in zip(layers, image.layers, strict=True)}

    def ready(blob: Descriptor, _: str) -> None:
        arrived[blob.digest].set_result(None)

    def ended(fetching: Future[Any]) -> None:
        error = fetching.exception()
        if error is not None:
            for blob in arrived.values():
                if not blob.done():
                    blob.set_exception(error)

    def unpacking(layer: int, done: int, size: int) -> None:
        progress.unpacking(layer + 1, len(layers), done, size)

    with ThreadPoolExecutor(1, "transfer") as pool:
        try:
            more = _counting(image, progress)
            fetching = pool.submit(fetch_all, source, image.layers, blobs, more, ready)
            fetching.add_done_callback(ended)
            unpacked = unpack(
                layers, root, owners, progress=unpacking, wait=lambda layer: awaited[layer.path].result()
            )
            fetching.result()
            return unpacked
        except BaseException:
            source.close()
            raise


def _counting(image: Image, progress: Progress) -> Callable[[Descriptor, int], None]:
    """Return what hears of new bytes of blobs and tells how many there are of each."""
    numbers = {layer.digest: number for number, layer in reversed(list(enumerate(image.layers, 1)))}
    have = dict.fromkeys(numbers, 0)

    def more(blob: Descriptor, count: int) -> None:
        have[blob.digest] += count
        progress.downloading(numbers[blob.digest], len(image.layers), have[blob.digest], blob.size)

    return more
