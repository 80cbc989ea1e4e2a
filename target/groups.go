package target

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Group is a control group of a process.
type Group struct {
	// Hierarchy is "" for the unified hierarchy, otherwise the controllers of an older one
	// ("cpu,cpuacct"), or its name ("name=systemd").
	Hierarchy string
	Path      []string // from the root down
}

// parseGroups parses /proc/PID/cgroup (cgroups(7)).
func parseGroups(s string) (out []Group) {
	for line := range strings.Lines(s) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			out = append(out, Group{Hierarchy: f[1], Path: components(f[2])})
		}
	}
	return out
}

func components(dir string) []string {
	return strings.FieldsFunc(dir, func(r rune) bool { return r == '/' })
}

// unitSuffixes are the kinds of units (systemd.unit(5)).
var unitSuffixes = []string{".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer", ".slice", ".scope"}

// isUnit reports whether a name has the suffix of a kind of unit.
func isUnit(name string) bool {
	return slices.Contains(unitSuffixes, path.Ext(name)) && path.Ext(name) != name
}

// inUnit calls is for the components of the group that systemd keeps.
func (f *Found) inUnit(is func(component string) bool) bool {
	return slices.ContainsFunc(f.Groups, func(g Group) bool {
		return (g.Hierarchy == "" || g.Hierarchy == "name=systemd") && slices.ContainsFunc(g.Path, is)
	})
}

// InUnit returns a match of the processes of a systemd unit. As for systemctl(1), a name without the
// suffix of a kind of unit is a service's.
func InUnit(name string) func(*Found) bool {
	if !isUnit(name) {
		name += ".service"
	}
	// systemd writes "_" before names that the kernel could use itself, such as cpu.service.
	return func(f *Found) bool {
		return f.inUnit(func(c string) bool { return c == name || c == "_"+name })
	}
}

// HasUnits reports whether systemd runs (sd_booted(3)), here or outside of this container: then some
// process is in the group of a unit.
func HasUnits() bool {
	if fi, err := os.Stat("/run/systemd/system"); err == nil && fi.IsDir() {
		return true
	}
	proc, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(proc, func(d os.DirEntry) bool {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			return false
		}
		b, err := os.ReadFile("/proc/" + d.Name() + "/cgroup")
		return err == nil && (&Found{Groups: parseGroups(string(b))}).inUnit(isUnit)
	})
}

// InCgroup returns a match of the processes of a control group and of the groups below it. dir is
// the group's folder, or its path as in /proc/PID/cgroup. A folder is of one hierarchy; a path may
// be of any.
func InCgroup(dir string) func(*Found) bool {
	dir = path.Clean("/" + dir)
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return inGroup(dir, "")
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil { // "cpu" is a link to "cpu,cpuacct"
		if m, _ := groupMount(real, string(b)); m != nil {
			dir = real
		}
	}
	return inGroup(dir, string(b))
}

// inGroup is InCgroup with the mounts of /proc/PID/mountinfo.
func inGroup(dir, mounts string) func(*Found) bool {
	m, want := groupMount(dir, mounts)
	if m == nil {
		for _, place := range []string{"/sys/fs/cgroup/unified/", "/sys/fs/cgroup/systemd/", "/sys/fs/cgroup/"} {
			if rest, ok := strings.CutPrefix(dir+"/", place); ok {
				dir = rest
				break
			}
		}
		want = components(dir)
	}
	return func(f *Found) bool {
		return slices.ContainsFunc(f.Groups, func(g Group) bool {
			return (m == nil || m(g.Hierarchy)) && len(g.Path) >= len(want) && slices.Equal(g.Path[:len(want)], want)
		})
	}
}

// groupMount returns the hierarchy that is mounted at dir or above it, and the group's path in it;
// nil if none is.
func groupMount(dir, mounts string) (is func(hierarchy string) bool, group []string) {
	longest := 0
	for line := range strings.Lines(mounts) {
		// number, parent, device, root, mount point, options, optional fields, "-", type, source, options
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+4 || f[dash+1] != "cgroup" && f[dash+1] != "cgroup2" {
			continue
		}
		point := unescapeMount(f[4])
		rest, ok := strings.CutPrefix(dir+"/", strings.TrimSuffix(point, "/")+"/")
		if !ok || len(point) < longest { // the last mount at a place is on top
			continue
		}
		longest, group = len(point), components(unescapeMount(f[3])+"/"+rest)
		options := strings.Split(f[dash+3], ",")
		if f[dash+1] == "cgroup2" {
			is = func(hierarchy string) bool { return hierarchy == "" }
			continue
		}
		is = func(hierarchy string) bool {
			return hierarchy != "" && !slices.ContainsFunc(strings.Split(hierarchy, ","), func(c string) bool { return !slices.Contains(options, c) })
		}
	}
	return is, group
}

// unescapeMount replaces the octal numbers that the kernel writes for blanks in paths.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
