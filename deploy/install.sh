#!/bin/sh
# Installs trmon and its pinned dependencies into a virtual environment; the image build and installations without
# containers use it. Usage: deploy/install.sh FOLDER
set -eu
venv=$1
repository=$(cd "$(dirname "$0")/.." && pwd)

"${PYTHON:-python3}" -m venv "$venv"
install() { "$venv/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
install --require-hashes --only-binary :all: -r "$repository/requirements/run.txt"
install --no-deps --no-build-isolation "$repository/client" "$repository"
"$venv/bin/trmon" version
