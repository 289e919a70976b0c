"""The server: pages over a folder, read-only, each request checked before anything is looked up."""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
import secrets
import socket
import socketserver
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from reprod_log.alignment import Alignment, align
from reprod_log.errors import ReprodLogError, UsageError
from reprod_log.report import Options
from reprod_log.report.formats import html
from reprod_log.report.serve import pages
from reprod_log.report.serve.listing import Listing, signature_of
from reprod_log.report.serve.pages import live_data

_KEPT_REPORTS = 4
_OWN_PAGES = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; img-src data: blob:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# A report carries its own, stricter policy.
_REPORTS = "frame-ancestors 'none'"


@dataclass(frozen=True)
class Shown:
    """A report that was asked for."""

    alignment: Alignment
    page: str


class Server(ThreadingHTTPServer):
    """Serves one folder until it is shut down."""

    daemon_threads = True

    def __init__(self, folder: Path, *, host: str = "127.0.0.1", port: int = 0, token: str = "") -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder; reprod serve takes the folder with alignments and recordings")
        self.listing = Listing(folder, self._make_ready)
        self.access = Access.for_host(host, token)
        self._reports: OrderedDict[tuple[object, ...], Shown] = OrderedDict()
        self._lock = Lock()
        self._host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"cannot listen on {host}:{port}: {why}. Choose another --host or --port.") from error

    def server_bind(self) -> None:
        """Bind without asking the network for this machine's name, which may take long where there is none."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self._host, int(self.server_address[1])

    @property
    def address(self) -> str:
        """What to open in a browser, with the token if there is one."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.server_port}/" + (f"?token={self.access.token}" if self.access.token else "")

    def server_close(self) -> None:
        """Free the port and read nothing more."""
        super().server_close()
        self.listing.close()

    def _make_ready(self, path: Path, alignment: Alignment) -> None:
        """Render a large report before it is asked for, as long as there is room for it."""
        if len(self._reports) < _KEPT_REPORTS:
            self._kept(lambda: alignment, path)

    def shown(self, query: dict[str, str]) -> Shown | None:
        """A saved alignment, or two recordings compared as they are now; None unless all are in the list."""
        if "name" in query:
            found = self.listing.path(query["name"], "alignment")
            return None if found is None else self._kept(lambda: Alignment.load(found), found)
        ours, theirs = (self.listing.path(query.get(name, ""), "recording") for name in ("reference", "candidate"))
        return (
            None
            if ours is None or theirs is None
            else self._kept(lambda: align(ours, theirs, progress=False), ours, theirs)
        )

    def _show(self, alignment: Alignment, paths: tuple[Path, ...]) -> Shown:
        names = ("reference", "candidate") if len(paths) > 1 else ("name",)
        query = urlencode({name: self.listing.name(path) for name, path in zip(names, paths, strict=True)})
        return Shown(alignment, html.render(alignment, Options(tensors=f"/tensor.json?{query}")))

    def _kept(self, make: Callable[[], Alignment], *paths: Path) -> Shown:
        key = tuple((str(path), signature_of(path)) for path in paths)
        with self._lock:
            if key in self._reports:
                self._reports.move_to_end(key)
                return self._reports[key]
        made = self._show(make(), paths)
        with self._lock:
            self._reports[key] = made
            while len(self._reports) > _KEPT_REPORTS:
                self._reports.popitem(last=False)
        return made


def serving(folder: Path, *, host: str = "127.0.0.1", port: int = 0, token: str = "") -> Server:
    """A server for `folder`, bound and ready for `serve_forever`."""
    return Server(folder, host=host, port=port, token=token)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "reprod_log"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        allowed = self.server.access.allows(
            host=self.headers.get("Host", ""), cookie=self.headers.get("Cookie", ""), given=query.get("token", "")
        )
        if not allowed:
            needed = "Open the address that reprod serve printed; it carries the token."
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"{needed}\n")
        elif query.get("token"):
            self._enter(address.path)
        else:
            try:
                self._route(address.path, query)
            except ConnectionError:
                # The reader has gone on to another page.
                self.close_connection = True
            except (ReprodLogError, OSError) as error:
                self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, "text/html", pages.problem(str(error)))

    do_HEAD = do_GET

    def _route(self, path: str, query: dict[str, str]) -> None:
        listing = self.server.listing
        if path == "/":
            self._answer(HTTPStatus.OK, "text/html", pages.index(listing))
        elif path == "/items.json":
            self._answer(HTTPStatus.OK, "application/json", json.dumps([one.to_dict() for one in listing.items()]))
        elif path in ("/alignment", "/compare") and (shown := self.server.shown(query)):
            self._answer(HTTPStatus.OK, "text/html", shown.page, policy=_REPORTS)
        elif path == "/tensor.json" and (shown := self.server.shown(query)):
            tensor = pages.tensor_data(shown.alignment, query.get("entry", ""), listing)
            self._answer(HTTPStatus.OK, "application/json", json.dumps(tensor, allow_nan=False))
        elif path == "/recording" and listing.path(query.get("name", ""), "recording"):
            self._answer(HTTPStatus.OK, "text/html", pages.recording(query["name"], listing, query.get("with", "")))
        elif path == "/recording.json" and (found := listing.path(query.get("name", ""), "recording")):
            other = listing.path(query.get("with", ""), "recording")
            self._answer(HTTPStatus.OK, "application/json", json.dumps(live_data(found, other), allow_nan=False))
        elif (script := pages.script(path)) is not None:
            self._answer(HTTPStatus.OK, "text/javascript", script)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/html", pages.problem("There is nothing under this address."))

    def _enter(self, path: str) -> None:
        """The right token in the address becomes a cookie, so that it does not stay in the address."""
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Set-Cookie", f"{COOKIE}={self.server.access.token}; HttpOnly; SameSite=Strict; Path=/")
        # Not as it was asked for: `//elsewhere` would lead to another host.
        self.send_header("Location", "/" + path.lstrip("/"))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, status: HTTPStatus, kind: str, text: str, *, policy: str = _OWN_PAGES) -> None:
        content = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a page that looks every two seconds would fill the terminal, and addresses may hold the token."""


COOKIE = "reprod_log_token"


@dataclass(frozen=True)
class Access:
    """The rule for every request. An empty token means: loopback only, and only under a loopback name."""

    token: str = ""

    @classmethod
    def for_host(cls, host: str, token: str = "") -> Access:
        """A token is made up for every address that others can reach, unless one was given."""
        return cls(token or ("" if is_loopback(host) else new_token()))

    def allows(self, *, host: str, cookie: str, given: str) -> bool:
        """Whether a request may be answered: by its Host header, its cookie, or the token in its address."""
        if not self.token:
            # A page elsewhere may point its own name at 127.0.0.1; such a request names that host.
            return is_loopback(_without_port(host))
        return any(
            hmac.compare_digest(one.encode(), self.token.encode()) for one in (given, _from_cookie(cookie)) if one
        )


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Whether `host` means this machine and nothing else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_HOST = re.compile(r"(?P<name>\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")
"""A name or an address, and a port; nothing may stand behind the bracket of an address but that."""


def _without_port(host: str) -> str:
    found = _HOST.fullmatch(host)
    return "" if found is None else found["name"]


def _from_cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""
