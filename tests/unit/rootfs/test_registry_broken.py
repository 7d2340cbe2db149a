"""Downloads that break, registries that are busy, and disks: tried again, or ended and told."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile.rootfs.download import fetch_all
from coopfile.rootfs.model import Descriptor
from tests.unit.rootfs.fakeregistry import FAST, HASTY, FakeRegistry, Handler, big
from tests.unit.rootfs.images import AMD64, LAYER, MadeImage, descriptor, of, sha256
from tests.unit.rootfs.pulls import BIG, BLOB, fails, fetch, image


def test_a_broken_download_goes_on_where_it_broke(registry: FakeRegistry, tmp_path: Path) -> None:
    """Only the rest is asked for, and the whole is verified."""
    registry.blobs[BLOB.digest] = BIG
    registry.script(
        "/blobs/",
        lambda handler: handler.part(BIG, len(BIG), 1000),
        lambda handler: handler.part(BIG, len(BIG), 2_000_000),
        registry.serve,
    )
    told = fetch(registry, tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == BIG
    assert [asked.get("Range") for asked in registry.asked("/blobs/")] == [
        None,
        "bytes=1000-",
        "bytes=2000000-",
    ]
    assert sum(told) == len(BIG)


def test_a_registry_without_ranges_sends_all_of_it_again(registry: FakeRegistry, tmp_path: Path) -> None:
    """What was there is forgotten, also in the count of bytes."""
    registry.script(
        "/blobs/", lambda handler: handler.part(BIG, len(BIG), 1000), lambda handler: handler.give(BIG)
    )
    told = fetch(registry, tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == BIG
    assert -1000 in told
    assert sum(told) == len(BIG)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("bytes 0-9/3145728", "another part"),
        ("bytes 999-3145727/3145728", "another part"),
        ("bytes 1000-1009/1010", "has 1010 bytes"),
        ("x", "another part"),
        ("", "another part"),
    ],
)
def test_another_range_than_asked_for_is_refused(
    registry: FakeRegistry, tmp_path: Path, answer: str, said: str
) -> None:
    """A part from elsewhere is an error, not written."""
    registry.script(
        "/blobs/",
        lambda handler: handler.part(BIG, len(BIG), 1000),
        lambda handler: handler.give(BIG[:10], 206, Content_Range=answer),
    )
    assert said in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert os.listdir(tmp_path) == []


def test_a_download_that_breaks_again_and_again_ends(registry: FakeRegistry, tmp_path: Path) -> None:
    """After some tries without progress the error says how far it came."""
    registry.script("/blobs/", lambda handler: handler.part(BIG, len(BIG), 1000))
    error = fails(lambda: fetch(registry, tmp_path / "layer"))
    assert "broke" in error.message
    assert len(registry.asked("/blobs/")) == FAST.tries
    assert os.listdir(tmp_path) == []


def test_progress_earns_more_tries(registry: FakeRegistry, tmp_path: Path) -> None:
    """A connection that breaks after every MiB brings the layer in the end."""
    blob = big(5 << 20)
    step = 1 << 20
    registry.script(
        "/blobs/", lambda handler: handler.part(blob, len(blob), min(len(blob), handler.start + step))
    )
    fetch(registry, tmp_path / "layer", Descriptor(LAYER, sha256(blob), len(blob)))
    assert (tmp_path / "layer").read_bytes() == blob
    assert len(registry.asked("/blobs/")) == 5 > FAST.tries


def trickle(handler: Handler) -> None:
    """Send a byte now and then, always in time for the socket's own timeout."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BIG)))
    handler.end_headers()
    for byte in BIG:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(0.05)


@pytest.mark.parametrize("part", ["/blobs/", "/manifests/"])
def test_a_trickle_counts_as_broken(registry: FakeRegistry, tmp_path: Path, part: str) -> None:
    """Bytes in time for the socket are still too few."""
    registry.limits = HASTY
    registry.script(part, trickle)
    start = time.monotonic()
    error = fails(lambda: image(registry) if part == "/manifests/" else fetch(registry, tmp_path / "layer"))
    assert "sends less than 2000 bytes in 0.25 s" in error.message
    assert time.monotonic() - start < 60, "the whole takes hours"


def test_a_head_that_trickles_is_cut_off(registry: FakeRegistry) -> None:
    """An answer that never gets to its body ends in time, too."""

    def head(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(600):
            handler.wfile.write(f"X-{number}: y\r\n".encode())
            handler.wfile.flush()
            time.sleep(0.1)

    registry.limits = HASTY
    registry.script("/manifests/", head)
    start = time.monotonic()
    fails(lambda: image(registry))
    assert time.monotonic() - start < 50


def test_a_registry_that_says_nothing_is_given_up(registry: FakeRegistry) -> None:
    """Each try has a timeout, and there are few."""
    registry.limits = HASTY
    registry.script("/manifests/", lambda handler: time.sleep(1))
    assert "does not answer" in fails(lambda: image(registry)).message
    assert len(registry.asked("/manifests/")) == FAST.tries


def busy(status: int, **headers: str) -> Callable[[Handler], None]:
    """Return an answer that asks for patience."""
    return lambda handler: handler.give(b"{}", status, **headers)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_busy_registry_is_asked_again(registry: FakeRegistry, tmp_path: Path, status: int) -> None:
    """Documents and blobs alike; the answer after that counts."""
    made = registry.add(MadeImage())
    registry.script("/manifests/", busy(status), busy(status), registry.serve)
    registry.script("/blobs/", busy(status), registry.serve)
    found = image(registry)
    fetch(registry, tmp_path / "layer", found.layers[0])
    assert (tmp_path / "layer").read_bytes() == made.layer


def test_retry_after_is_honoured(registry: FakeRegistry) -> None:
    """The pause is as long as the registry asks for."""
    registry.add(MadeImage())
    registry.script("/manifests/", busy(429, Retry_After="1"), registry.serve)
    start = time.monotonic()
    image(registry)
    assert time.monotonic() - start >= 1


@pytest.mark.parametrize("pause", ["60", "3600", "Fri, 31 Dec 2100 23:59:59 GMT", "9" * 5000])
def test_a_long_retry_after_is_told_and_not_waited_for(registry: FakeRegistry, pause: str) -> None:
    """The limit of downloads is an error with what helps."""
    registry.script("/manifests/", busy(429, Retry_After=pause))
    start = time.monotonic()
    error = fails(lambda: image(registry))
    assert "allows no more downloads" in error.message
    assert "log in" in str(error.remedy)
    assert time.monotonic() - start < 60
    assert len(registry.asked("/manifests/")) == 1


@pytest.mark.parametrize("pause", ["soon", "-5", "", "1e9", "Fri, 99 Dec"])
def test_a_strange_retry_after_is_ignored(registry: FakeRegistry, pause: str) -> None:
    """What is no time is as if it were not there."""
    registry.add(MadeImage())
    registry.script("/manifests/", busy(503, Retry_After=pause), registry.serve)
    image(registry)


def test_a_refused_connection_is_told_at_once(registry: FakeRegistry) -> None:
    """Not after two minutes."""
    registry.close()
    start = time.monotonic()
    error = fails(lambda: image(registry))
    assert error.message == f"{registry.address} refuses connections"
    assert time.monotonic() - start < 60
    registry.close = lambda: None  # type: ignore[method-assign]


def test_an_unknown_host_is_told_as_such() -> None:
    """The name of the registry is in the message."""
    from coopfile.language.items import ImageReference
    from coopfile.rootfs.registry import RegistrySource

    source = RegistrySource(ImageReference("registry.invalid", "app", "1"), {}, limits=FAST)
    error = fails(lambda: source.image(AMD64))
    assert "registry.invalid" in error.message
    source.close()


def test_the_first_error_ends_all_downloads(registry: FakeRegistry, tmp_path: Path) -> None:
    """A wrong digest is told while another transfer still hangs, and that leaves nothing either."""
    wrong = b"w" * 1000
    registry.blobs[sha256(wrong)] = b"x" * 1000
    slow = FAST.replace(read=60.0, slow=60.0)
    hung = threading.Event()

    def hang(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BIG)))
        handler.end_headers()
        handler.wfile.write(BIG[:1000])
        handler.wfile.flush()
        hung.set()
        time.sleep(60)

    def late(handler: Handler) -> None:
        hung.wait(60)
        registry.serve(handler)

    registry.script(BLOB.digest, hang)
    registry.script(sha256(wrong), late)
    source = registry.source(limits=slow)
    start = time.monotonic()
    error = fails(lambda: fetch_all(source, [BLOB, of(descriptor(wrong, LAYER))], str(tmp_path)))
    assert "has the digest" in error.message
    assert time.monotonic() - start < 50
    assert os.listdir(tmp_path) == []
    source.close()


def test_an_interrupt_ends_all_downloads(registry: FakeRegistry, tmp_path: Path) -> None:
    """Control-C does not wait for transfers that hang."""

    def hang(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BIG)))
        handler.end_headers()
        handler.wfile.write(BIG[:1000])
        handler.wfile.flush()
        time.sleep(60)

    registry.script("/blobs/", hang)
    source = registry.source(limits=FAST.replace(read=60.0, slow=60.0))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fetch_all(source, [BLOB], str(tmp_path), lambda blob, count: os.kill(os.getpid(), signal.SIGINT))
    assert time.monotonic() - start < 50
    assert os.listdir(tmp_path) == []
    source.close()


def test_a_length_of_thousands_of_digits_says_nothing(registry: FakeRegistry, tmp_path: Path) -> None:
    """Of documents and of blobs; what arrives is bounded and verified without it."""

    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "9" * 5000)
        handler.end_headers()
        handler.wfile.write(BIG[:1000])
        handler.close_connection = True

    registry.script("/v2/", endless)
    assert "cannot be used" in fails(lambda: image(registry)).message
    assert "broke off" in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_told_as_such(registry: FakeRegistry) -> None:
    """The path and the reason are in the error."""
    registry.blobs[BLOB.digest] = BIG
    error = fails(lambda: fetch(registry, Path("/proc/self/layer")))
    assert "cannot be stored" in error.message
