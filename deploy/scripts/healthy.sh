#!/bin/sh
# healthy.sh: exit code 0 if the server, or the site's node and its way to the server, answer.
set -eu
# shellcheck source=deploy/scripts/settings.sh
. "$(dirname "$0")/settings.sh"
if [ -n "${FEDCE_SITE:-}" ]; then
  set -- "127.0.0.1:$FEDCE_NODE_PORT" "${FEDCE_SERVER:?}"
else
  set -- "127.0.0.1:$FEDCE_PORT"
fi
exec "${PYTHON:-python3}" - "$@" <<'END'
import socket
import sys

for address in sys.argv[1:]:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        sys.exit(f"{address} does not answer ({error})")
END
