# shellcheck shell=sh
# What the server, the sites and the scripts around them share; read by the other scripts, not run.
here=$(cd "$(dirname "$0")" && pwd)
if [ -x "$here/../bin/fedce" ]; then
  PATH=$here/../bin:$PATH
fi
FEDCE_HOME=${FEDCE_HOME:-/var/lib/fedce}
FEDCE_HOST=${FEDCE_HOST:-127.0.0.1}
FEDCE_PORT=${FEDCE_PORT:-9093}
FEDCE_NODE_PORT=${FEDCE_NODE_PORT:-9094}
FEDCE_KEY=${FEDCE_KEY:-$FEDCE_HOME/key.pem}
FLWR_HOME=${FLWR_HOME:-$FEDCE_HOME/flwr}
XDG_CACHE_HOME=${XDG_CACHE_HOME:-$FEDCE_HOME/cache}
# Otherwise Flower and MLflow send telemetry, and Flower looks for updates.
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.1
export MLFLOW_DISABLE_TELEMETRY=true
export FEDCE_HOME FEDCE_KEY FLWR_HOME XDG_CACHE_HOME PATH

stop() {
  echo "fedce: $1" >&2
  exit 2
}

# Without certificates nothing starts by accident: whoever reaches the port could submit apps.
need_certificates() {
  if [ -z "${FEDCE_CERTS:-}" ] && [ "${FEDCE_INSECURE:-}" != 1 ]; then
    stop "set FEDCE_CERTS to the folder with the certificates, or FEDCE_INSECURE=1 on a network that nobody else reaches"
  fi
}
