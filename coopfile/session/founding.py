"""Making the process that becomes PID 1 of a session's sandbox, in user and PID namespaces of its own.

Its pages are those of the monitor, which nobody else has written to. So it is not the maker that forks
it, which has written to many by then, but the *founder*, which does nothing else. That one goes at once,
and the monitor, which adopts what loses its parent, is PID 1's parent from then on.
"""

from __future__ import annotations

import os
from os import fork, pidfd_open, setsid

from coopfile.native import report, serve, signals, title
from coopfile.native.namespaces import enter_user_namespace
from coopfile.native.wire import Broken, receive, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from typing import NoReturn

_NAME = "coop"  # no more than that: it is seen inside


def main(maker: _socket.socket, gate: int, mask: set[int]) -> NoReturn:
    """Be the founder; never returns. ``maker`` leads to the maker, from here and from PID 1.

    It sends ids and whether there is a network namespace, with the descriptor to report to, and gets
    PID 1's number, and a descriptor of it. The others are ``serve.main``'s.
    """
    status = 1
    reported = -1
    try:
        title.take(_NAME)
        setsid()  # nobody's terminal counts; and no signal to a process group reaches another session
        (uid, gid, own_network), (reported,) = receive(maker, 1)
        enter_user_namespace(uid, gid)
        pid = fork()
        if pid == 0:
            serve.main(maker, reported, mask, own_network, gate)
        try:
            send(maker, (pid,), (pidfd_open(pid),))
        except BaseException:
            os.kill(pid, signals.SIGKILL)
            raise
        status = 0
    except Broken:
        pass  # the maker has told why
    except BaseException as error:
        report.send_error(reported, error)
    finally:
        os._exit(status)
