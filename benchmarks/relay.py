"""A piece of network between nodes and a server on this machine: it counts bytes, and can be cut."""

import selectors
import socket
from threading import Event, Thread


class Relay(Thread):
    """Passes on all data that come to `port`."""

    def __init__(self, target: int) -> None:
        super().__init__(daemon=True)
        self.target = ("127.0.0.1", target)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.n_bytes = 0
        self._cut, self._closed = Event(), Event()
        self.start()

    def cut(self) -> None:
        """Cut the line: from the return of this call on, nothing passes until `restore`."""
        self._closed.clear()
        self._cut.set()
        self._closed.wait()

    def restore(self) -> None:
        self._cut.clear()

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            while True:
                ready = selector.select(timeout=0.1)
                if self._cut.is_set():
                    for key in [key for key in selector.get_map().values() if key.fileobj is not self.listener]:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                    self._closed.set()
                    ready = selector.select(timeout=0)
                for key, _ in ready:
                    if key.fileobj is self.listener:
                        self._accept(selector)
                    elif key.fileobj in selector.get_map():
                        self._pass_on(selector, key)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        here, _ = self.listener.accept()
        try:
            if self._cut.is_set():
                raise ConnectionRefusedError
            there = socket.create_connection(self.target)
        except OSError:  # No program listens yet, or the line is cut; nodes try again.
            here.close()
            return
        selector.register(here, selectors.EVENT_READ, there)
        selector.register(there, selectors.EVENT_READ, here)

    def _pass_on(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        source, target = key.fileobj, key.data
        try:
            content = source.recv(1 << 20)
            target.sendall(content)
        except OSError:
            content = b""
        self.n_bytes += len(content)
        if not content:
            for end in (source, target):
                selector.unregister(end)
                end.close()
