"""Has as many descriptors under way in sockets as it can: a user may only have so many in all."""

import errno
import socket

from pytest_fib import implements

SOCKETS = []
IN_A_MESSAGE = 253


def fill():
    """Send descriptors that nobody receives; returns how many."""
    sent = 0
    while True:
        # Few pairs of sockets, since there is a limit of open files, too.
        SOCKETS.append(socket.socketpair())
        for _ in range(5):
            try:
                socket.send_fds(SOCKETS[-1][0], [b"x"], [0] * IN_A_MESSAGE)
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    raise
                return sent
            sent += IN_A_MESSAGE


@implements("scale_float32")
def run(x, factor):
    print("under way:", fill())
    return x * 0
