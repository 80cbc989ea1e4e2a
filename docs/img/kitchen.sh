# For the scripts beside it, which read it at the top of the tree: builds sliver in a temporary folder, $tmp,
# and starts testdata/targets/locks/kitchen.c as process $target. Both are gone when the script ends.
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
