#!/usr/bin/env bash
# Starts docker-compose.yml, asks each of its services, prints a line for each promise, and stops the services again.
#
#   EXPORT_DIR=$PWD/exports/mine serving/prove.sh
#
# Needs Docker with Compose, curl, and Python with the packages of serving/requirements.txt and tensorflow-serving-api.
# Exit status 0 if all promises are kept, 1 if one is broken, 2 if the services do not start.
# shellcheck disable=SC2329  # `prove` calls the other functions.
set -euo pipefail
cd "$(dirname "$0")/.."

compose() { docker compose --project-name translation-proof --file serving/docker-compose.yml "$@"; }

broken=0
prove() { # prove PROMISE COMMAND...: runs a command, and prints whether it succeeds, with the last line that it prints
  local promise=$1 mark='ok  ' found
  shift
  found=$("$@" 2>&1) || { mark='FAIL'; broken=1; }
  printf '%s  %-52s  %.100s\n' "$mark" "$promise" "$(tail --lines 1 <<<"$found")"
}

get() { curl --fail --silent --show-error --max-time 60 "$@"; }
shows() { # shows PATTERN CURL-ARGUMENTS...: asks, and prints the first match of the pattern
  local pattern=$1 body
  shift
  body=$(get "$@") && grep --only-matching --extended-regexp "$pattern" <<<"$body" | sed --quiet 1p
}
answers_as() { # answers_as TYPE URL: asks, and compares the content type
  [[ $(get --output /dev/null --write-out '%{content_type}' "$2") == "$1"* ]]
}
target() { # target URL: the target language of LibreTranslate's API; a text in it would stay as it is
  shows '"target": ?\{"code": ?"[A-Za-z-]+' "$1/frontend/settings" | grep --only-matching '[A-Za-z-]*$'
}
translates() { # translates URL: asks LibreTranslate's API, whatever the languages are
  shows '"translatedText": ?"[^"]+"' "$1/translate" --data q=one --data source=auto --data "target=$(target "$1")"
}
translates_html() { # translates_html URL
  shows '<b>[^<]+</b>' "$1/translate" --data q='<b>one</b>' --data source=auto --data "target=$(target "$1")" --data format=html
}
translates_file() { # translates_file URL: uploads a file, and downloads its translation
  local address
  address=$(shows 'http[^"]+' "$1/translate_file" --form 'file=@-;filename=a.html' --form source=auto \
    --form "target=$(target "$1")" <<<'<p>one</p>') && shows '<p>[^<]+</p>' "$address"
}
counts() { # counts QUERY: asks Prometheus until the query has a value that is not 0, for at most a minute
  for _ in {1..30}; do
    shows '"[1-9][0-9.e+]*"\]' --get http://localhost:9090/api/v1/query --data-urlencode "query=$1" && return
    sleep 2
  done
  return 1
}
is_not_root() { # is_not_root SERVICE
  local user
  user=$(compose exec -T "$1" id -u) && ((user > 0))
}
stops() { # stops SERVICE SECONDS: stops a service, which must not need so long that Docker kills it
  local begun=$SECONDS
  compose stop --timeout 30 "$1" && echo "$((SECONDS - begun)) s" && ((SECONDS - begun < $2))
}

trap 'compose down --volumes >/dev/null 2>&1' EXIT
if ! compose up --build --detach --wait; then
  compose logs --tail 20
  exit 2
fi

model=:tensorflow:serving:request_latency_count
prove 'REST and gRPC answer as TensorFlow Serving' \
  python3 -m serving.smoke_test --url http://localhost:8501 --grpc localhost:8500
prove 'the page is there' shows '<title>Translator' http://localhost:8080/
prove 'its style is there' answers_as text/css http://localhost:8080/page.css
prove 'its script is there' answers_as application/javascript http://localhost:8080/page.js
prove 'it may ask the model' shows '"serving_default"' http://localhost:8080/v1/models/translator/metadata
prove "LibreTranslate's API translates" translates http://localhost:5000
prove 'the page has the same API' translates http://localhost:8080
prove 'tags stay in HTML' translates_html http://localhost:8080
prove 'a file comes back translated' translates_file http://localhost:8080
prove 'Prometheus reads the server' counts 'up{job="tensorflow_serving"}'
prove 'Prometheus counts predictions' counts "sum($model{API=~\"[Pp]redict\"})"
prove 'Grafana has the dashboard' shows '"title": ?"Translation"' http://localhost:3000/api/dashboards/uid/translation
prove 'Grafana reaches Prometheus' shows '"status": ?"success"' \
  http://localhost:3000/api/datasources/proxy/uid/prometheus/api/v1/query --get --data query=up
for service in tensorflow-serving gateway page; do
  prove "$service is not root" is_not_root "$service"
done
prove 'SIGTERM ends TensorFlow Serving' stops tensorflow-serving 10
prove 'SIGTERM ends the gateway' stops gateway 10
exit "$broken"
