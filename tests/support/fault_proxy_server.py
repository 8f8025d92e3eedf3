# SPDX-License-Identifier: Apache-2.0
"""The fault proxy's own process: TLS in front of a kube-apiserver, with faults that a control socket sets.

    python -m tests.support.fault_proxy_server FOLDER PORT SERVER_HOST SERVER_PORT

FOLDER holds proxy.crt, proxy.key, server-ca.crt, and gets control.sock. It is a process of its own since
an executor forks its watchers: a fork would inherit the proxy's sockets, and a connection that the proxy
closes would stay open in the copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.fault_wire import Head, read_body, read_head, relay_reply
from tests.support.faults import Fault, answer_bytes

LOGGED_BODY = 200_000


@dataclass
class Rule:
    """A fault that is set, and what it did so far."""

    number: int
    fault: Fault
    seen: int = 0
    hit: int = 0
    waiting: int = 0
    removed: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, head: Head, body: bytes) -> bool:
        fault = self.fault
        return (
            (not fault.method or re.fullmatch(fault.method, head.method) is not None)
            and re.search(fault.path, head.path) is not None
            and re.search(fault.query, head.query) is not None
            and (not fault.body or re.search(fault.body, body.decode("utf-8", "replace")) is not None)
        )

    def takes(self) -> bool:
        """Count a matching request; whether it is hit."""
        self.seen += 1
        if self.seen <= self.fault.skip:
            return False
        if self.fault.count is not None and self.hit >= self.fault.count:
            return False
        self.hit += 1
        return True


class DroppedError(Exception):
    """The client's connection is to end here."""


class Proxy:
    """See the module's text."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._target = host, port
        self._context = ssl.create_default_context(cafile=str(folder / "server-ca.crt"))
        self._context.set_alpn_protocols(["http/1.1"])
        self._rules: dict[int, Rule] = {}
        self._numbers = 0
        self._log: list[dict[str, object]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # The proxied side.

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one client connection until either side ends it."""
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while (head := await read_head(reader)) is not None:
                body = await read_body(reader, head)
                if upstream is None or upstream[0].at_eof() or upstream[1].is_closing():
                    upstream = await asyncio.open_connection(*self._target, ssl=self._context)
                await self._exchange(head, body, reader, writer, upstream)
        except (OSError, asyncio.IncompleteReadError, DroppedError, ValueError):
            pass
        finally:
            for end in (writer, upstream[1] if upstream else None):
                if end is not None:
                    with contextlib.suppress(Exception):
                        end.close()

    async def _exchange(
        self,
        head: Head,
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        rule = self._rule_for(head, body)
        entry: dict[str, object] = {
            "method": head.method,
            "path": head.path,
            "query": head.query,
            "body": body[:LOGGED_BODY].decode("utf-8", "replace"),
            "fault": rule.fault.action if rule else "",
            "status": 0,
            "sent": False,
        }
        self._log.append(entry)
        if rule is not None:
            await self._before(rule, writer)
            if rule.fault.action == "answer" and not rule.fault.forward:
                entry.update(status=rule.fault.status, sent=True)
                writer.write(answer_bytes(rule.fault))
                await writer.drain()
                return
        upstream[1].write(head.raw + body)
        await upstream[1].drain()
        reply = await read_head(upstream[0], reply_to=head)
        if reply is None:
            raise DroppedError
        entry["status"] = reply.status
        if rule is not None and rule.fault.action in ("answer", "drop_reply", "hold") and rule.fault.forward:
            kept = reply.raw + await read_body(upstream[0], reply)
            await self._instead_of_reply(rule, writer, kept)
            entry["sent"] = rule.fault.action != "drop_reply"
            return
        entry["sent"] = True
        await relay_reply(reply, upstream, (reader, writer), lambda: self._stalled(head, body))

    async def _before(self, rule: Rule, writer: asyncio.StreamWriter) -> None:
        fault = rule.fault
        if fault.action == "delay":
            await asyncio.sleep(fault.seconds)
        elif fault.action == "hold" and not fault.forward:
            await self._wait(rule)
        elif fault.action == "reset":
            transport = writer.transport
            plain: socket.socket = transport.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
            raise DroppedError

    async def _instead_of_reply(self, rule: Rule, writer: asyncio.StreamWriter, kept: bytes) -> None:
        fault = rule.fault
        if fault.action == "drop_reply":
            await asyncio.sleep(fault.seconds)
            raise DroppedError
        if fault.action == "hold":
            await self._wait(rule)
        writer.write(kept if fault.action == "hold" else answer_bytes(fault))
        await writer.drain()

    async def _wait(self, rule: Rule) -> None:
        rule.waiting += 1
        try:
            await rule.removed.wait()
        finally:
            rule.waiting -= 1

    def _rule_for(self, head: Head, body: bytes) -> Rule | None:
        for rule in list(self._rules.values()):
            if rule.fault.action != "stall" and rule.matches(head, body) and rule.takes():
                return rule
        return None

    async def _stalled(self, head: Head, body: bytes) -> None:
        """Return when no "stall" holds this reply's bytes any more."""
        while True:
            found = [
                rule
                for rule in self._rules.values()
                if rule.fault.action == "stall" and rule.matches(head, body)
            ]
            if not found:
                return
            found[0].hit += 1
            await self._wait(found[0])

    # The control side.

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one line of JSON with one line of JSON."""
        with contextlib.suppress(OSError):
            line = await reader.readline()
            if line:
                writer.write(json.dumps(self._told(json.loads(line))).encode() + b"\n")
                await writer.drain()
            writer.close()

    def _told(self, order: dict[str, object]) -> object:
        verb = order["verb"]
        if verb == "add":
            self._numbers += 1
            fault = order["fault"]
            assert isinstance(fault, dict)
            self._rules[self._numbers] = Rule(self._numbers, Fault(**fault))
            return self._numbers
        if verb == "remove":
            wanted = order["number"]
            for number in list(self._rules) if wanted is None else [int(str(wanted))]:
                rule = self._rules.pop(number, None)
                if rule is not None:
                    rule.removed.set()
            return None
        if verb == "look":
            rule = self._rules.get(int(str(order["number"])))
            return None if rule is None else {"seen": rule.seen, "hit": rule.hit, "waiting": rule.waiting}
        if verb == "log":
            return self._log[int(str(order["since"])) :]
        raise ValueError(f"unknown verb {verb!r}")


async def _main(folder: Path, port: int, host: str, server_port: int) -> None:
    proxy = Proxy(folder, host, server_port)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "proxy.crt", folder / "proxy.key")
    context.set_alpn_protocols(["http/1.1"])
    front = await asyncio.start_server(proxy.serve, "127.0.0.1", port, ssl=context, limit=2**20)
    back = await asyncio.start_unix_server(proxy.control, folder / "control.sock", limit=2**24)
    async with front, back:
        await asyncio.gather(front.serve_forever(), back.serve_forever())


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
