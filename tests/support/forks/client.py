"""Starts Python by way of the server: `python -S -E client.py SOCKET ARGUMENTS` does what `python ARGUMENTS` does.

It hands its standard streams over, passes signals on, and ends as the process that was forked for it ends. Signals wait
until that process is known: it may have begun to write before. Only little of the standard library is imported here, so
that it starts at once.
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH)


def main() -> None:
    """Ask, wait, and end in the same way."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        given = {"arguments": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109
        text = json.dumps(given).encode()
        sent = socket.send_fds(connection, [text], [0, 1, 2])
        connection.sendall(text[sent:])
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("r")
        process = int(answer.readline())
        for number in PASSED_ON:
            signal.signal(number, lambda number, frame: os.kill(process, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        code = os.waitstatus_to_exitcode(int(answer.read()))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
