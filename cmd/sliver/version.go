package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
)

// Set by the release build with -ldflags -X; otherwise Go's own build information is used.
var (
	version = "" // such as v0.1.0
	commit  = "" // the revision of the source
	date    = "" // the time of the commit, RFC 3339
)

// versionString returns this program's version for recordings.
func versionString() string {
	if version != "" {
		return version
	}
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return cmp.Or(bi.Main.Version, "(devel)")
}

// writeVersion prints the version, the commit, and how the program was built.
func writeVersion(w io.Writer) {
	fmt.Fprintf(w, "sliver %s\n", versionString())
	set, sum := map[string]string{}, ""
	if bi, ok := debug.ReadBuildInfo(); ok {
		sum = bi.Main.Sum
		for _, s := range bi.Settings {
			set[s.Key] = s.Value
		}
	}
	rev := cmp.Or(commit, set["vcs.revision"])
	if rev == "" && sum != "" { // go install has the files of the version, but not its commit
		rev = "that of the version's tag; the module is " + sum
	}
	rev = cmp.Or(rev, "unknown")
	if set["vcs.modified"] == "true" {
		rev += " (modified)"
	}
	if at := cmp.Or(date, set["vcs.time"]); at != "" {
		rev += ", " + at
	}
	fmt.Fprintf(w, "commit %s\n", rev)
	build := []string{runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	for _, key := range []string{"GOAMD64", "GOARM64", "CGO_ENABLED", "-trimpath", "-tags", "-race"} {
		if v := set[key]; v != "" {
			build = append(build, key+"="+v)
		}
	}
	fmt.Fprintf(w, "build  %s\n", strings.Join(build, " "))
}
