"""Frames between processes that need not trust one another."""

import os
import signal
import socket
import struct
import threading
from collections import Counter
from time import sleep

import pytest

from pytest_fib.sandbox import Channel, ChannelBroken, ChannelClosed, ChannelLate

#: The most bytes that a message may have, unless the receiver says otherwise.
LIMIT = 64 << 20


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


def frame(serial, payload):
    return struct.pack("!QI", serial, len(payload)) + payload


@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
def test_what_is_sent_arrives(ends, size):
    channel, end = ends
    payload = os.urandom(size)
    sender = threading.Thread(target=Channel(end).send, args=(7, payload))
    sender.start()
    assert channel.receive(10) == (7, payload, [])
    sender.join()


def test_descriptors_travel_with_a_frame(ends, tmp_path):
    channel, end = ends
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"contents")
        file.flush()
        channel.send(1, b"payload", (file.fileno(),))
        serial, payload, [received] = Channel(end).receive(10, descriptors=1)
    assert (serial, payload) == (1, b"payload")
    assert os.pread(received, 100, 0) == b"contents"
    os.close(received)


def test_descriptors_that_nobody_asked_for_are_not_kept(ends, open_files):
    channel, end = ends
    before = Counter(open_files())
    socket.send_fds(end, [frame(1, b"")], [0, 1, 2])
    assert channel.receive(10) == (1, b"", [])
    assert not Counter(open_files()) - before  # others may be closed meanwhile


def test_a_frame_in_pieces_is_one_frame(ends):
    channel, end = ends

    def dribble():
        for byte in frame(3, b"whole"):
            end.send(bytes([byte]))

    sender = threading.Thread(target=dribble)
    sender.start()
    assert channel.receive(10) == (3, b"whole", [])
    sender.join()


def test_nothing_at_all_is_late(ends):
    channel, _ = ends
    with pytest.raises(ChannelLate):
        channel.receive(0.05)


def test_whoever_dribbles_on_is_late_all_the_same(ends):
    """Each byte comes in time; the frame does not."""
    channel, end = ends
    stop = threading.Event()

    def dribble():
        while not stop.is_set():
            end.send(b"\0")
            sleep(0.02)

    end.sendall(struct.pack("!QI", 1, 1_000_000))
    sender = threading.Thread(target=dribble)
    sender.start()
    try:
        with pytest.raises(ChannelLate):
            channel.receive(0.3)
    finally:
        stop.set()
        sender.join()


def test_what_came_while_the_receiver_was_stopped_is_in_time(ends):
    channel, end = ends
    receiver = os.fork()
    if receiver == 0:
        arrived = 1
        try:
            arrived = channel.receive(0.5) != (1, b"payload", [])
        finally:
            os._exit(arrived)
    sleep(0.1)  # it waits by then; if not, that only makes it easier
    os.kill(receiver, signal.SIGSTOP)
    end.sendall(frame(1, b"payload"))
    sleep(0.7)
    os.kill(receiver, signal.SIGCONT)
    assert os.waitpid(receiver, 0)[1] == 0


def test_a_reader_that_does_not_read_makes_the_sender_late(ends):
    channel, _ = ends
    with pytest.raises(ChannelLate):
        channel.send(1, bytes(LIMIT), timeout=0.1)


def test_an_announced_excess_is_refused_before_it_is_read(ends):
    channel, end = ends
    end.sendall(struct.pack("!QI", 1, LIMIT + 1))
    with pytest.raises(ChannelBroken, match=f"a message of {LIMIT + 1} bytes"):
        channel.receive(10)


def test_the_limit_is_the_receivers_own():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame(1, bytes(101)))
        with pytest.raises(ChannelBroken, match="a message of 101 bytes"):
            Channel(ours, limit=100).receive(10)


@pytest.mark.parametrize("sent", [b"", b"\0" * 5, struct.pack("!QI", 1, 10) + b"half"])
def test_an_end_that_closes_is_noticed_at_once(ends, sent):
    channel, end = ends
    end.sendall(sent)
    end.close()
    with pytest.raises(ChannelClosed):
        channel.receive()


def test_sending_to_a_closed_end_says_closed(ends):
    channel, end = ends
    end.close()
    with pytest.raises(ChannelClosed):
        channel.send(1, b"payload", timeout=10)


def test_what_lies_unread_is_pending(ends):
    channel, end = ends
    assert not channel.pending()
    end.send(b"x")
    assert channel.pending()
    end.close()


def test_a_closed_end_is_not_pending(ends):
    channel, end = ends
    end.close()
    assert not channel.pending()
