#!/bin/sh
# Installs fedce with Flower and the trackers into a virtual environment, and the scripts beside it.
# deploy/scripts/install.sh FOLDER [further options of pip install]
set -eu
folder=${1:?the folder of the new environment, such as /opt/fedce}
shift
repository=$(cd "$(dirname "$0")/../.." && pwd)
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --no-cache-dir --disable-pip-version-check -c "$repository/constraints.txt" "$@" \
  "${repository}[flower,tracking]"
mkdir -p "$folder/deploy"
cp "$repository"/deploy/scripts/start.sh "$repository"/deploy/scripts/submit.sh "$repository"/deploy/scripts/healthy.sh \
  "$repository"/deploy/scripts/settings.sh "$folder/deploy/"
