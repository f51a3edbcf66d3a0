#!/usr/bin/env python3
"""Draws the last screen of a command into an SVG file, for the pages in docs/.

    scripts/screen.py docs/observing-watch.svg --seconds 3 -- mscclpp-run status --watch

The command has a terminal of its own, and is ended after so many seconds, if it has not ended by itself. The drawing has the command and the text that it
would leave on the screen; of escape sequences it knows those that clear the screen, and passes over the others.
"""

import argparse
import fcntl
import html
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

WIDTH, HEIGHT = 7.3, 17  # of a character
CLEAR = re.compile(r"\x1b\[H\x1b\[2?J|\x1b\[2J(?:\x1b\[H)?|\x1b\[H\x1b\[J|\x1b\[H")
OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>].?")


def shown(command: list, seconds: float, columns: int) -> str:
    """Returns what the command has written to its terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    text, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not select.select([terminal], [], [], left)[0]:
            break
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the command has ended
            break
        if not part:
            break
        text += part
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    os.close(terminal)
    os.waitpid(pid, 0)
    return text.decode("utf-8", "replace")


def lines(text: str) -> list:
    """Returns the lines of the last screen that is whole."""
    screens = [s for s in CLEAR.split(text) if OTHER.sub("", s).strip()]
    last = screens[-2] if len(screens) > 1 else screens[-1]
    return [OTHER.sub("", line).rstrip() for line in last.replace("\r", "").strip("\n").split("\n")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--columns", type=int, default=140)
    parser.add_argument("--show", help="the command as the drawing has it")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    text = shown(args.command, args.seconds, args.columns)
    if not OTHER.sub("", text).strip():
        sys.exit(f"{args.command[0]}: it has shown nothing")
    rows = [f"$ {args.show or ' '.join(args.command)}"] + [row[: args.columns] for row in lines(text)]
    width, height = int(WIDTH * max(map(len, rows)) + 24), HEIGHT * len(rows) + 20
    with open(args.file, "w", encoding="utf-8") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" font-size="12">\n')
        out.write('<rect width="100%" height="100%" rx="6" fill="#1b1f24"/>\n')
        for i, row in enumerate(rows):
            color = "#8ab4f8" if i == 0 else "#e6e6e6"
            if row:
                out.write(f'<text x="12" y="{HEIGHT * i + 22}" fill="{color}" xml:space="preserve">{html.escape(row)}</text>\n')
        out.write("</svg>\n")


if __name__ == "__main__":
    main()
