#!/bin/sh
# Entrypoint of the image. `secrets` and `tokens` create what the first start needs and keep existing files; `serve` also
# creates the tokens, so that a single container is enough; any other argument is a trmon command.
#   TRMON_DATA_DIR     the folder of the embedded database
#   SECRETS            postgres/, grafana/ and tokens/, each a volume mounted only by its readers
set -eu
umask 077

random() { python -c 'import secrets; print(secrets.token_urlsafe(32))'; }

# Writes a file atomically: FILE MODE, the content on stdin.
write_file() {
  cat >"$1.new"
  chmod "$2" "$1.new"
  mv "$1.new" "$1"
}

make_secrets() {
  [ -s "$SECRETS/postgres/password" ] || random | write_file "$SECRETS/postgres/password" 644
  password=$(cat "$SECRETS/postgres/password")
  printf 'postgres:5432:trmon:trmon:%s\n' "$password" | write_file "$SECRETS/postgres/pgpass" 600
  [ -s "$SECRETS/grafana/password" ] || random | write_file "$SECRETS/grafana/password" 644
}

# Creates a token; if its file was lost, replaces its secret: NAME SCOPE MODE.
make_token() {
  [ -s "$SECRETS/tokens/$1" ] && return
  secret=$(trmon token create "$1" --scope "$2" --days 3650 2>/dev/null) ||
    secret=$(trmon token rotate "$1" --overlap 0s --days 3650)
  printf '%s' "$secret" | write_file "$SECRETS/tokens/$1" "$3"
  echo "created the token $1 in $SECRETS/tokens/$1" >&2
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
