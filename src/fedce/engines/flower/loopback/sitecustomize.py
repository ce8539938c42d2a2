"""Found by every Python program of a trial on this machine: its HTTP servers ask for a token, and its clients bring it.

Flower 1.41 asks a SuperLink's users for no credential (only its commercial version does), and every account of the
machine can reach a port on loopback. An account that can submit an app runs code as the user who started the SuperLink.
So `fedce run --engine flower` puts this file on its programs' path and the token into their environment, which other
accounts can't read. Only public names of uvicorn and httpx are touched, when a program imports them.

Flower starts a program for every message. A third of the time that it takes to start and end is the collector's, which
walks again and again over what imports make and what stays to the end.
"""

import atexit
import gc
import importlib.abc
import importlib.util
import os
import sys
from hmac import compare_digest
from typing import Any, ClassVar

TOKEN = os.environ.get("FEDCE_LOOPBACK_TOKEN", "")
HEADER = "x-fedce-loopback"
HERE = ("127.0.0.1", "localhost")


def guarded(app: Any) -> Any:
    """An ASGI app that answers only requests with the token."""

    async def asked(scope: Any, receive: Any, send: Any) -> Any:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        brought = dict(scope.get("headers") or ()).get(HEADER.encode(), b"")
        if compare_digest(brought, TOKEN.encode()):
            return await app(scope, receive, send)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"this server is of a run on this machine alone"})
        return None

    return asked


def ask_for_it(module: Any) -> None:
    """uvicorn.config: every server of this program asks for the token."""
    load = module.Config.load

    def loaded(self: Any) -> None:
        load(self)
        self.loaded_app = guarded(self.loaded_app)

    module.Config.load = loaded


def bring_it(module: Any) -> None:
    """httpx: requests to this machine bring the token."""
    init = module.Client.__init__

    def begun(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.event_hooks = {**self.event_hooks, "request": [*self.event_hooks["request"], _with_token]}

    module.Client.__init__ = begun


def _with_token(request: Any) -> None:
    if request.url.host in HERE:
        request.headers[HEADER] = TOKEN


class Patches(importlib.abc.MetaPathFinder):
    """Changes a module right after a program has imported it; programs that don't import it pay nothing."""

    waiting: ClassVar = {"uvicorn.config": ask_for_it, "httpx": bring_it}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.waiting:
            return None
        change = self.waiting.pop(name)
        spec: Any = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


gc.set_threshold(100_000, 50, 1000)
atexit.register(gc.freeze)
if TOKEN:
    sys.meta_path.insert(0, Patches())
