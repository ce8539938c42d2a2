#!/bin/sh
# submit.sh EXPERIMENT.toml NAME: at the server, starts the experiment, or goes on with it if it was stopped, and waits.
# The run folder is $FEDCE_HOME/runs/NAME. The exit code is 0 if the run ended with a report.
set -eu
# shellcheck source=deploy/scripts/settings.sh
. "$(dirname "$0")/settings.sh"
experiment=${1:?the experiment file}
name=${2:?the name of the run}
out=$FEDCE_HOME/runs/$name
need_certificates
mkdir -p "$FLWR_HOME" "$FEDCE_HOME/runs"

security="insecure = true"
[ -z "${FEDCE_CERTS:-}" ] || security="root-certificates = \"$FEDCE_CERTS/ca.pem\""
printf '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:%s"\n%s\n' "$FEDCE_PORT" "$security" \
  >"$FLWR_HOME/config.toml"
app=$FEDCE_HOME/apps/$name
rm -rf "$app"
fedce deploy flower "$experiment" --out "$app"
flwr run "$app" here --run-config "out='$out' command='submit.sh $name'" --stream
# flwr returns 0 even if the app crashed.
[ -f "$out/report.html" ] || stop "$name has not ended; $out.engine/outcome.json says why, the same command goes on"
echo "the report is $out/report.html"
