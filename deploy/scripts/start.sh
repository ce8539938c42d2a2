#!/bin/sh
# start.sh server: Flower's SuperLink. start.sh site: a SuperNode for one hospital. Anything else: a command of fedce.
# docs/deploy.md lists the variables. Both halves stay in the foreground and end with SIGTERM.
set -eu
# shellcheck source=deploy/scripts/settings.sh
. "$(dirname "$0")/settings.sh"

case "${1:-}" in
  server)
    need_certificates
    mkdir -p "$FEDCE_HOME"
    set -- --host "$FEDCE_HOST" --port "$FEDCE_PORT" --database "$FEDCE_HOME/superlink.db" \
      --disable-runtime-dependency-installation
    if [ -n "${FEDCE_CERTS:-}" ]; then
      set -- "$@" --ssl-certfile "$FEDCE_CERTS/server.pem" --ssl-keyfile "$FEDCE_CERTS/server.key" \
        --ssl-ca-certfile "$FEDCE_CERTS/ca.pem" --enable-supernode-auth
    else
      set -- "$@" --insecure
    fi
    exec flower-superlink "$@"
    ;;
  site)
    need_certificates
    mkdir -p "$FEDCE_HOME"
    [ -n "${FEDCE_SITE:-}" ] || stop "set FEDCE_SITE to the site's name in the experiment's engine.members"
    [ -n "${FEDCE_DATA:-}" ] || stop "set FEDCE_DATA to the folder with the site's images and masks"
    [ -n "${FEDCE_SERVER:-}" ] || stop "set FEDCE_SERVER to the server's address, such as fl.example.org:8443"
    case $FEDCE_SITE$FEDCE_DATA$FEDCE_HOME in *\'*) stop "FEDCE_SITE, FEDCE_DATA and FEDCE_HOME must have no '" ;; esac
    set -- --superlink "$FEDCE_SERVER" --port "$FEDCE_NODE_PORT" \
      --node-config "site='$FEDCE_SITE' data='$FEDCE_DATA' home='$FEDCE_HOME'"
    if [ -n "${FEDCE_CERTS:-}" ]; then
      set -- "$@" --root-certificates "$FEDCE_CERTS/ca.pem" --auth-supernode-private-key "$FEDCE_CERTS/supernode"
    else
      set -- "$@" --insecure
    fi
    [ -z "${FEDCE_TRUSTED:-}" ] || set -- "$@" --trusted-entities "$FEDCE_TRUSTED"
    exec flower-supernode "$@"
    ;;
  *)
    exec fedce "$@"
    ;;
esac
