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
. docs/img/kitchen.sh
(cd "$tmp" && npm install --no-save --silent @xterm/xterm@5.5.0)
# Killed, so that the last screen stays.
(cd "$tmp" && timeout -s KILL 6 script -qfc "stty cols 110 rows 30; exec ./sliver top --by cpu $target" top.txt </dev/null >/dev/null 2>&1) || :
(cd "$tmp" && ./sliver record -q -p $target -d 4s -i 1ms -o kitchen.sliver &&
	script -qfc "stty cols 110 rows 60; ./sliver report kitchen.sliver --rows 6" report.txt </dev/null >/dev/null 2>&1)
node web/page/test/terminal.mjs "$chromium" "$tmp" docs/img
