"""Signals that come while the main thread waits, however long it takes to get there."""

import os
import threading
import time

#: How many looks in a row must find it asleep, how far apart they are, and when to send the signal in any case.
LOOKS, PAUSE_S, LONGEST_S = 10, 0.03, 30


def send_once_asleep(number):
    """Starts, in the main thread, a thread that sends this process the signal; returns it."""
    status = f"/proc/self/task/{threading.main_thread().native_id}/stat"

    def send():
        end, asleep = time.monotonic() + LONGEST_S, 0
        while asleep < LOOKS and time.monotonic() < end:
            time.sleep(PAUSE_S)
            with open(status) as file:
                asleep = asleep + 1 if file.read().rpartition(")")[2].split()[0] == "S" else 0
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    return sender
