# The Go commands do the work; these are names for the longer ones.
.PHONY: build test release

build:
	CGO_ENABLED=0 go build -buildvcs=auto -trimpath -ldflags "-E sliver_entry" -o sliver ./cmd/sliver

test:
	./test.sh

# Writes the files of a release to release/out.
release:
	release/build.sh
