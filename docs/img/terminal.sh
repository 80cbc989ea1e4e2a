#!/bin/sh
# Makes docs/img/top.png and docs/img/report.png: 'sliver top' and 'sliver report' in a terminal, for
# testdata/targets/locks/kitchen.c.
#
#	docs/img/terminal.sh
#
# Needs go, gcc, script (util-linux), node, Chromium, the right to trace, npm ci in web/page, and the npm
# registry for the terminal (@xterm/xterm).
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
(cd "$tmp" && npm install --no-save --silent @xterm/xterm@5.5.0)
"$tmp/kitchen/kitchen" --seconds 120 &
target=$!
# Killed, so that the last screen stays.
(cd "$tmp" && timeout -s KILL 6 script -qfc "stty cols 110 rows 30; exec ./sliver top --by cpu $target" top.txt </dev/null >/dev/null 2>&1) || :
(cd "$tmp" && ./sliver record -q -p $target -d 4s -i 1ms -o kitchen.sliver &&
	script -qfc "stty cols 110 rows 60; ./sliver report kitchen.sliver --rows 6" report.txt </dev/null >/dev/null 2>&1)
node web/page/test/terminal.mjs "$chromium" "$tmp" docs/img
