#!/bin/sh
# Makes docs/img/live.png, the README's first picture, and live-dark.png: the
# page of a real `sliver record --web` on testdata/targets/locks/kitchen.c.
#
#	docs/img/live.sh
#
# Needs go, gcc, node, Chromium, the right to trace, and npm ci in web/page.
set -eu
cd "$(dirname "$0")/../.."
. docs/img/kitchen.sh
node web/page/test/picture.mjs "$tmp/sliver" "$chromium" "$tmp" "$target" docs/img
