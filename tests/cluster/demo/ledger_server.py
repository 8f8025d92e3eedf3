# SPDX-License-Identifier: Apache-2.0
"""The ledger: counts executions from outside of what is executed. Standard library only; runs in its own pod.

``POST /mark?run=&who=&event=`` appends a mark; ``GET /marks?run=&event=`` lists them;
``POST /release?run=`` lets the pods of a run finish; ``GET /released?run=`` answers "yes" or "no".
Each mark is on disk before it is answered, so a restart of this container loses none.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_lock = threading.Lock()
_entries: list[dict[str, str]] = []


def load(file: Path) -> None:
    """Read what an earlier process wrote."""
    if file.exists():
        _entries.extend(json.loads(line) for line in file.read_text().splitlines())


def append(file: Path, entry: dict[str, str]) -> None:
    """Put one entry on disk, then in memory."""
    with _lock, file.open("a") as target:
        target.write(json.dumps(entry) + "\n")
        target.flush()
        os.fsync(target.fileno())
        _entries.append(entry)


class Handler(BaseHTTPRequestHandler):
    """Answers the four pages; anything else is a 404."""

    file: Path

    def do_GET(self) -> None:
        page, query = self._asked()
        with _lock:
            found = [
                entry
                for entry in _entries
                if entry["run"] == query.get("run") and entry["event"] == query.get("event", "release")
            ]
        if page == "/marks":
            self._answer(200, json.dumps(found))
        elif page == "/released":
            self._answer(200, "yes" if found else "no")
        else:
            self._answer(200 if page == "/" else 404, "ledger\n")

    def do_POST(self) -> None:
        page, query = self._asked()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if page == "/release":
            append(self.file, {"run": query["run"], "who": "story", "event": "release"})
        elif page == "/mark":
            append(self.file, {"run": query["run"], "who": query["who"], "event": query["event"]})
        else:
            self._answer(404, "no such page\n")
            return
        self._answer(200, "{}")

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        return parts.path.rstrip("/") or "/", {
            key: values[0] for key, values in parse_qs(parts.query).items()
        }

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if text[:1] in "[{" else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(folder: str, port: int) -> None:
    Handler.file = Path(folder) / "marks.jsonl"
    load(Handler.file)
    ThreadingHTTPServer(("", port), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
