"""Frames between a pool and its workers: a length and a pickle over a local stream socket."""

from __future__ import annotations

import select
import socket
import struct
import time

__all__ = ["WireClosed", "send_frame", "recv_frame", "wait_readable"]

_HEAD = struct.Struct("<Q")
_CHUNK = 1 << 20


class WireClosed(Exception):
    """The other end has gone."""


def send_frame(sock: socket.socket, payload: bytes) -> None:
    """Send one frame; raises :class:`WireClosed` when the peer is gone."""
    try:
        if len(payload) < 4096:
            sock.sendall(_HEAD.pack(len(payload)) + payload)
        else:
            sock.sendall(_HEAD.pack(len(payload)))
            sock.sendall(payload)
    except OSError as err:
        raise WireClosed(str(err)) from None


def wait_readable(sock: socket.socket, deadline: float | None) -> bool:
    """True when data (or an end of stream) is there before ``deadline`` (``time.monotonic`` seconds; None waits forever)."""
    poller = select.poll()
    poller.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    rest = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    return bool(poller.poll(rest))


def recv_frame(sock: socket.socket, deadline: float | None = None) -> bytes:
    """Receive one frame; raises :class:`WireClosed` at an end of stream and ``TimeoutError`` after ``deadline``."""
    (size,) = _HEAD.unpack(_recv_exact(sock, _HEAD.size, deadline))
    return _recv_exact(sock, size, deadline)


def _recv_exact(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not wait_readable(sock, deadline):
            raise TimeoutError
        try:
            part = sock.recv(min(size - len(data), _CHUNK))
        except OSError as err:
            raise WireClosed(str(err)) from None
        if not part:
            raise WireClosed("end of stream")
        data += part
    return bytes(data)
