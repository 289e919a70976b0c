"""Who may look: on the loopback address anyone on this machine, elsewhere only who has the token."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

COOKIE = "reprod_log_token"


@dataclass(frozen=True)
class Access:
    """The rule for every request. An empty token means: loopback only, and only under a loopback name."""

    token: str = ""

    @classmethod
    def for_host(cls, host: str, token: str = "") -> Access:
        """A token is made up for every address that others can reach, unless one was given."""
        return cls(token or ("" if is_loopback(host) else secrets.token_urlsafe(24)))

    def allows(self, *, host: str, cookie: str, given: str) -> bool:
        """Whether a request may be answered: by its Host header, its cookie, or the token in its address."""
        if not self.token:
            # A page elsewhere may point its own name at 127.0.0.1; such a request names that host.
            return is_loopback(_without_port(host))
        return any(
            hmac.compare_digest(one.encode(), self.token.encode()) for one in (given, _from_cookie(cookie)) if one
        )


def is_loopback(host: str) -> bool:
    """Whether `host` means this machine and nothing else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _from_cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""
