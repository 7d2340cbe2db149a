"""The typed values that stand in settings and plans. Parsing them is ``values``' job."""

from __future__ import annotations

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class ImageReference(Record):
    """An OCI reference in full, as Docker users mean it.

    ``debian`` is ``docker.io/library/debian:latest``. ``digest`` is
    ``sha256:<64 hex digits>`` or None; ``tag`` is None only beside a digest.
    """

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


class LocalImage(Record):
    """An image in a file of the host: ``oci:PATH[:NAME]``, ``oci-archive:`` or ``docker-archive:``.

    ``path`` begins with ``/`` or ``~/``, or is relative to the project. ``name`` is a
    layout's tag or the name that was saved, None for the only image there is.
    """

    transport: str
    path: str
    name: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        name = f":{self.name}" if self.name else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.transport}:{self.path}{name}{digest}"


class HostPattern(Record):
    """A host that ``network.allow`` names: lower-case, without a trailing dot.

    With ``subdomains`` it stands for every name below ``host`` (``*.host``), not
    for ``host`` itself. ``port`` None means 80 and 443. ``host`` may be an IP literal.
    """

    host: str
    subdomains: bool = False
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        star = "*." if self.subdomains else ""
        port = f":{self.port}" if self.port else ""
        return f"{star}{host}{port}"

    def covers(self, other: HostPattern) -> bool:
        """Tell whether every connection that ``other`` allows is allowed by this too."""
        if self.port is not None and self.port != other.port:
            return False
        if self.port is None and other.port not in (None, 80, 443):
            return False
        if self.subdomains:
            below = other.host.endswith("." + self.host)
            return below or (other.subdomains and other.host == self.host)
        return self.host == other.host and not other.subdomains

    def covering(self) -> Iterator[HostPattern]:
        """Yield every other pattern that covers this one."""
        ports = (self.port, None) if self.port in (80, 443) else (self.port,)
        above = [HostPattern(self.host, self.subdomains, port) for port in ports]
        host = self.host
        while "." in host:
            host = host.partition(".")[2]
            above += [HostPattern(host, True, port) for port in ports]
        yield from (pattern for pattern in above if pattern != self)


class PublishedPort(Record):
    """A port of the host that leads to one of the sandbox; ``address`` is the host's."""

    address: str
    host: int
    sandbox: int

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.host}:{self.sandbox}"


class Variable(Record):
    """An environment variable: a literal ``value``, or the name of the ``host``'s variable."""

    name: str
    value: str | None = None
    host: str | None = None

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.host is None else f"{self.name} from ${self.host}"
