# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 framing for the fault proxy: heads and bodies pass through byte for byte."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_BODILESS = (204, 304)
_SWITCHING = 101
_LOOK_SECONDS = 1.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Head:
    """A request's or a reply's first lines; ``raw`` is what came over the wire."""

    raw: bytes
    method: str = ""
    target: str = ""
    status: int = 0
    length: int | None = None
    chunked: bool = False
    until_close: bool = False

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]


async def read_head(reader: asyncio.StreamReader, reply_to: Head | None = None) -> Head | None:
    """Read a request's head, or the head of the reply to ``reply_to``; None where the peer has closed."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    fields = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    chunked = "chunked" in fields.get("transfer-encoding", "")
    length = None if chunked or "content-length" not in fields else int(fields["content-length"])
    if reply_to is None:
        method, target, _ = first.split(" ", 2)
        return Head(raw, method, target, length=length, chunked=chunked)
    status = int(first.split(" ")[1])
    if status in _BODILESS or reply_to.method == "HEAD":
        return Head(raw, status=status, length=0)
    return Head(
        raw, status=status, length=length, chunked=chunked, until_close=not chunked and length is None
    )


async def _parts(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """The body as it comes, with its framing."""
    if head.chunked:
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
            if size == 0:
                return
    elif head.until_close:
        while part := await reader.read(65536):
            yield part
    else:
        left = head.length or 0
        while left:
            part = await reader.read(min(left, 65536))
            if not part:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(part)
            yield part


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """Read a whole body; with its framing it can be sent on after the head as it came."""
    return b"".join([part async for part in _parts(reader, head)])


async def relay_reply(
    reply: Head,
    upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    may_go_on: Callable[[], Awaitable[None]],
) -> None:
    """Send a reply on while it comes (a watch never ends); ``may_go_on`` is awaited before each part.

    Raises ConnectionError when the client is gone, so that the server's side of a watch ends too.
    """
    await may_go_on()
    client[1].write(reply.raw)
    await client[1].drain()
    if reply.status == _SWITCHING:
        await _tunnel(upstream, client)
        return
    parts = _parts(upstream[0], reply)
    while True:
        part = await _while_there(anext(parts, None), client)
        if part is None:
            break
        await _while_there(may_go_on(), client)
        client[1].write(part)
        await client[1].drain()
    if reply.until_close:
        raise ConnectionError("the reply's end is the connection's end")


async def _while_there(
    wanted: Awaitable[_T], client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> _T:
    """Wait for something as long as the client is connected."""
    task = asyncio.ensure_future(wanted)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=_LOOK_SECONDS)
            if done:
                return task.result()
            if client[0].at_eof() or client[1].is_closing():
                raise ConnectionError("the client is gone")
    finally:
        task.cancel()


async def _tunnel(
    upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while part := await source.read(65536):
            target.write(part)
            await target.drain()

    ways = [
        asyncio.ensure_future(copy(upstream[0], client[1])),
        asyncio.ensure_future(copy(client[0], upstream[1])),
    ]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    raise ConnectionError("a switched connection is not used again")
