"""Attending to a command from a running asyncio loop, without a thread."""

from __future__ import annotations

import asyncio

from coopfile.session.capture import LATE, silent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from coopfile.session.capture import Streams
    from coopfile.session.model import Ended, Running


async def attend(running: Running, streams: Streams, timeout: float | None) -> Ended:
    """Wait for a command's end while its streams flow. Raises as ``capture.attend`` does."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    end, sink = running.fileno(), streams.sink

    def settle(error: BaseException | None) -> None:
        if not over.done():
            over.set_result(None) if error is None else over.set_exception(error)

    def flow(step: Callable[[int], bool], descriptor: int) -> None:
        try:
            if step(descriptor):
                forget(descriptor)
                streams.shut(descriptor)
        except BaseException as error:  # else the loop would report it, and wait on
            forget(descriptor)
            settle(error)

    def forget(descriptor: int) -> None:
        loop.remove_writer(descriptor) if descriptor == sink else loop.remove_reader(descriptor)

    timer = None if timeout is None else loop.call_later(timeout + LATE, lambda: settle(silent(timeout)))
    loop.add_reader(end, settle, None)
    for source in streams.sources:
        loop.add_reader(source, flow, streams.take, source)
    if sink is not None:
        loop.add_writer(sink, flow, streams.feed, sink)
    try:
        await over
    finally:
        if timer is not None:
            timer.cancel()
        loop.remove_reader(end)
        for descriptor in streams.open:
            forget(descriptor)
    ended = running.wait()
    streams.drain()
    return ended
