#!/bin/sh
# Installs trmon and what it runs on, in pinned versions, into a virtual environment: the image is built by it, and so is
# a machine without containers. Usage: deploy/install.sh FOLDER
set -eu
venv=$1
repository=$(cd "$(dirname "$0")/.." && pwd)

"${PYTHON:-python3}" -m venv "$venv"
install() { "$venv/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
install -r "$repository/requirements/run.txt"
install --no-deps --no-build-isolation "$repository/client" "$repository"
"$venv/bin/trmon" version
