#!/usr/bin/env bash
# Builds the files of a release: static programs for amd64 and arm64, archives, .deb and .rpm packages, lists of
# components (CycloneDX), and SHA256SUMS.
#
#   release/build.sh [--out DIR] [--arch amd64,arm64] [--only archive]
#
# The same commit gives the same files, byte for byte, on any machine and in any folder: nothing depends on
# the time, the path or the user. The version is the tag of the commit, or the last tag with the commit's
# number and name behind it. --only archive leaves out what needs tools from the network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=release/out archs=amd64,arm64 only=
while (($#)); do
	case $1 in
	--out) out=${2:?--out takes a folder} && shift ;;
	--arch) archs=${2:?--arch takes a list} && shift ;;
	--only) [[ ${2-} == archive ]] || { echo "release: --only takes archive" >&2 && exit 2; } && only=$2 && shift ;;
	*)
		sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
		exit 2
		;;
	esac
	shift
done
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

if [[ -n $(git status --porcelain --untracked-files=no) ]]; then
	echo "release: there are changes that are not committed" >&2
	exit 1
fi
version=$(git describe --tags --match 'v[0-9]*' 2>/dev/null || echo "v0.0.0-$(git rev-list --count HEAD)-g$(git rev-parse --short=12 HEAD)")
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC CGO_ENABLED=0 GOOS=linux GOFLAGS=-mod=readonly GOAMD64=v1 GOARM64=v8.0
umask 022
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/sliver[_-]* "$out"/SHA256SUMS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # ARCH FILE
	GOARCH=$1 go build -trimpath -buildvcs=false \
		-ldflags "-s -w -E sliver_entry -buildid= -X main.version=$version -X main.commit=$commit -X main.date=$date" -o "$2" ./cmd/sliver
}

# licences prints the licence notices of all modules that are linked into the program.
licences() { # ARCH
	GOARCH=$1 go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/sliver | sort -u |
		while read -r path v dir; do
			files=$(find "$dir" -maxdepth 1 -type f -iregex '.*/\(licen[sc]e\|copying\|notice\|patents\)[^/]*' ! -iname '*.go' | sort)
			if [[ -z $files ]]; then
				echo "release: $path $v has no licence file" >&2
				return 1
			fi
			while read -r f; do
				printf '================ %s %s: %s\n\n' "$path" "$v" "${f##*/}"
				cat "$f"
				printf '\n'
			done <<<"$files"
		done
	printf '================ Go %s: LICENSE\n\n' "$(go env GOVERSION)"
	cat "$(go env GOROOT)/LICENSE"
}

# The pages and completions come from the program itself.
build "$(go env GOHOSTARCH)" "$work/host"
"$work/host" __docs man "$work/man"
"$work/host" __docs completion "$work/completion"
gzip -9 -n "$work"/man/*

if [[ -z $only ]]; then
	for tool in "$nfpm" "$sbom"; do
		(cd "$work" && GOBIN=$work GOOS='' GOFLAGS='' go install "$tool")
	done
fi

for arch in ${archs//,/ }; do
	name=sliver_${version#v}_linux_$arch
	tree=$work/$name
	mkdir -p "$tree"/{man,completion,systemd}
	build "$arch" "$tree/sliver"
	cp LICENSE README.md CHANGELOG.md "$tree"
	licences "$arch" >"$tree/THIRD-PARTY-LICENSES"
	cp "$work"/man/* "$tree/man"
	cp "$work"/completion/* "$tree/completion"
	cp deploy/sliver-watch@.service "$tree/systemd"
	tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" | gzip -9 -n >"$out/$name.tar.gz"
	[[ $only == archive ]] && continue
	for format in deb rpm; do
		TREE=$tree ARCH=$arch VERSION=$version "$work/nfpm" package --config release/nfpm.yaml --packager "$format" --target "$out/$name.$format" >&2
	done
	GOARCH=$arch "$work/cyclonedx-gomod" app -json -licenses -assert-licenses -noserial -notimestamp -main cmd/sliver -output "$out/$name.cdx.json" .
done
(cd "$out" && sha256sum sliver_* >SHA256SUMS)
echo "release: $version in $out" >&2
