#!/bin/sh
# Makes docs/img/live.png, the README's first picture, and live-dark.png: the
# page of a real `sliver record --web` on testdata/targets/locks/kitchen.c.
#
#	docs/img/live.sh
#
# Needs go, gcc, node, Chromium, the right to trace, and npm ci in web/page.
set -eu
cd "$(dirname "$0")/../.."
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
tmp=$(mktemp -d)
target=
trap 'test -z "$target" || kill "$target" 2>/dev/null || :; rm -rf "$tmp"' EXIT
CGO_ENABLED=0 go build -o "$tmp/sliver" ./cmd/sliver
mkdir "$tmp/kitchen"
cp testdata/targets/locks/kitchen.c testdata/targets/include/prog.h "$tmp/kitchen"
(cd "$tmp/kitchen" && gcc -O2 -g -pthread -o kitchen kitchen.c)
"$tmp/kitchen/kitchen" --seconds 120 &
target=$!
node web/page/test/picture.mjs "$tmp/sliver" "$chromium" "$tmp" "$target" docs/img
