// Package otlp writes a recording as OpenTelemetry profiles: one
// ExportProfilesServiceRequest of opentelemetry.proto.profiles.v1development (field
// numbers as in go.opentelemetry.io/proto/otlp/profiles/v1development v0.4.0), as a
// collector's receiver accepts it over HTTP. It has the same contents as the pprof
// export; each sample type is a separate Profile, and each process a resource.
//
// A message follows its length, so samples and stacks are buffered until the last one is
// known, in memory or in a temporary file.
//
// Write may run for several recordings at once.
package otlp

import (
	"io"
	"regexp"
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// Attribute is a name with a string, int64 or []string value.
type Attribute struct {
	Key   string
	Value any
}

// schemaURL is the version of the semantic conventions that attributes follow.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// Write writes rec to w.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	_, err := Encode(w, rec, o, Resource, rec.Process.Sliver)
	return err
}

// Resource returns the attributes of the recorded process, by the semantic conventions.
func Resource(rec *trace.Recording) []Attribute {
	p := &rec.Process
	var out []Attribute
	add := func(key string, v any) {
		if v != "" && v != int64(0) {
			out = append(out, Attribute{key, v})
		}
	}
	text := func(s string) string { return view.Text(s, 1024) }
	service := text(p.Comm)
	if service == "" {
		service = "unknown_service"
	}
	add("service.name", service)
	add("host.name", text(p.Host))
	add("host.arch", map[string]string{"amd64": "amd64", "arm64": "arm64"}[p.Arch])
	add("os.type", "linux")
	add("os.version", text(p.Kernel))
	add("process.pid", int64(max(p.PID, 0)))
	add("process.executable.name", text(p.Comm))
	add("process.executable.path", text(p.Exe))
	if len(p.Cmdline) > 0 {
		args := []string{}
		for _, a := range p.Cmdline[:min(len(p.Cmdline), 256)] {
			args = append(args, text(a))
		}
		out = append(out, Attribute{"process.command_args", args})
	}
	container, pod := Cgroup(p.Container)
	add("container.id", container)
	add("k8s.pod.uid", pod)
	return out
}

var (
	containerID = regexp.MustCompile(`(?:^|[^0-9a-f])([0-9a-f]{64})(?:[^0-9a-f]|$)`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`)
)

// Cgroup extracts the container's ID and the Kubernetes pod's UID from the path of a
// control group, as Docker, containerd and CRI-O name them; "" if absent. systemd's names
// use underscores in the UID.
func Cgroup(path string) (container, pod string) {
	if m := containerID.FindAllStringSubmatch(path, -1); m != nil {
		container = m[len(m)-1][1] // the innermost
	}
	if m := podUID.FindStringSubmatch(path); m != nil {
		pod = strings.ReplaceAll(m[1], "_", "-")
	}
	return container, pod
}
