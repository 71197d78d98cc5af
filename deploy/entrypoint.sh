#!/bin/sh
# What a container does. `secrets` and `tokens` make what the first start needs, and nothing again; `serve` sees to the
# tokens itself, so that one container alone is enough; anything else is a command of trmon.
#   TRMON_DATA_DIR     the database, if it is the embedded one
#   SECRETS            postgres/, grafana/ and tokens/, each a volume that only those mount who read it
set -eu
umask 077

random() { python -c 'import secrets; print(secrets.token_urlsafe(32))'; }

# Writes a file that is whole or not there: FILE MODE, the content on stdin.
keep() {
  cat >"$1.new"
  chmod "$2" "$1.new"
  mv "$1.new" "$1"
}

make_secrets() {
  [ -s "$SECRETS/postgres/password" ] || random | keep "$SECRETS/postgres/password" 644
  password=$(cat "$SECRETS/postgres/password")
  printf 'postgres:5432:trmon:trmon:%s\n' "$password" | keep "$SECRETS/postgres/pgpass" 600
  [ -s "$SECRETS/grafana/password" ] || random | keep "$SECRETS/grafana/password" 644
}

create() { trmon token create "$1" --scope "$2" --days 3650; }

# A token whose file was lost is known, but by nobody: it is made anew. NAME SCOPE MODE.
make_token() {
  [ -s "$SECRETS/tokens/$1" ] && return
  if ! secret=$(create "$1" "$2" 2>/dev/null); then
    trmon token revoke "$1" >/dev/null
    secret=$(create "$1" "$2")
  fi
  printf '%s' "$secret" | keep "$SECRETS/tokens/$1" "$3"
  echo "made the token $1, in $SECRETS/tokens/$1" >&2
}

make_tokens() {
  make_token admin admin 600
  make_token trainer ingest 600
  make_token metrics read 644
}

case "${1:-serve}" in
  secrets) make_secrets ;;
  tokens) make_tokens ;;
  serve)
    make_tokens
    [ $# -eq 0 ] || shift
    exec trmon serve "$@"
    ;;
  *) exec trmon "$@" ;;
esac
