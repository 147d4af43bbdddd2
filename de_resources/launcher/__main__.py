"""The process of a fork server: `python -m de_resources.launcher DESCRIPTOR`, started by `ForkServer` only."""

import socket
import sys

from de_resources.launcher.server import prepare, serve


def main(descriptor: int) -> None:
    """Load what the other end names, and serve until it hangs up. In a forked worker: work, and end."""
    control = socket.socket(fileno=descriptor)
    loaded = prepare(control)
    if loaded is None:
        return
    task = serve(control, loaded)
    if task is not None:
        task()


if __name__ == "__main__":
    main(int(sys.argv[1]))
