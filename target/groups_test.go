package target

import "testing"

// The units in systemd's paths, in every layout of the control groups.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		cgroup string
		unit   string
		want   bool
	}{
		{"0::/system.slice/nginx.service\n", "nginx", true},
		{"0::/system.slice/nginx.service\n", "nginx.service", true},
		{"0::/system.slice/nginx.service\n", "ngin", false},
		{"0::/system.slice/nginx.service/worker\n", "nginx", true}, // a group that the service created below its own
		{"0::/system.slice/system-getty.slice/getty@tty1.service\n", "getty@tty1", true},
		{"0::/user.slice/user-1000.slice/user@1000.service/app.slice/editor.scope\n", "editor.scope", true},
		{"0::/user.slice/user-1000.slice/user@1000.service/app.slice/editor.scope\n", "user@1000", true},
		{"12:memory:/nginx.service\n0::/init.scope\n", "nginx", false},
		{"4:memory:/system.slice/a.service\n1:name=systemd:/system.slice/a.service\n0::/\n", "a", true}, // the hybrid layout
		{"0::/../../system.slice/nginx.service\n", "nginx", true},                                       // in a control group namespace
		{"0::/\n", "nginx", false},
		{"0::/system.slice/php8.2-fpm.service\n", "php8.2-fpm", true}, // a dot does not make a suffix
		{"0::/system.slice/php8.2-fpm.service\n", "php8.2-fpm.service", true},
		{"0::/system.slice/_cpu.service\n", "cpu", true}, // a name that the kernel could use
		{"0::/system.slice/docker.socket\n", "docker", false},
		{"", "nginx", false},
		{"nonsense\n0::", "nginx", false},
	} {
		f := &Found{Groups: parseGroups(c.cgroup)}
		if got := InUnit(c.unit)(f); got != c.want {
			t.Errorf("%q in %s: %v, want %v (%q)", c.cgroup, c.unit, got, c.want, f.Groups)
		}
	}
}

// Folders of control groups, in every layout.
func TestGroupFolders(t *testing.T) {
	const (
		unified = "24 23 0:21 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = "26 23 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
			"27 26 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
			"28 26 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
			"29 26 0:25 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
			"30 26 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		// In a container the root of its group is mounted, and paths are those of the host.
		container = "31 26 0:24 /docker/c1 /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n"
		blank     = "24 23 0:21 / /mnt/a\\040b rw - cgroup2 cgroup2 rw\n"
		docker    = "9:name=systemd:/init.scope\n4:memory:/docker/c1/job\n3:cpu,cpuacct:/docker\n0::/\n"
		plain     = "0::/docker/c1\n"
	)
	for _, c := range []struct {
		dir, mounts, cgroup string
		want                bool
	}{
		{"/docker", unified, plain, true},
		{"/docker/c1", unified, plain, true},
		{"/docker/c", unified, plain, false},
		{"/sys/fs/cgroup/docker", unified, plain, true},
		{"/sys/fs/cgroup/docker/c1/x", unified, plain, false},
		{"/sys/fs/cgroup/docker", "", plain, true}, // not mounted here
		{"/sys/fs/cgroup", unified, plain, true},
		{"/mnt/a b/docker", blank, plain, true},
		{"/sys/fs/cgroup/memory/docker/c1", hybrid, docker, true},
		{"/sys/fs/cgroup/cpu,cpuacct/docker", hybrid, docker, true},
		{"/sys/fs/cgroup/cpu,cpuacct/docker/c1", hybrid, docker, false}, // it is there in another hierarchy
		{"/sys/fs/cgroup/unified/docker", hybrid, docker, false},
		{"/sys/fs/cgroup/systemd/init.scope", hybrid, docker, true},
		{"/sys/fs/cgroup/init.scope", hybrid, docker, true},
		{"/docker/c1", hybrid, docker, true}, // as in /proc/PID/cgroup: any hierarchy
		{"/docker/c2", hybrid, docker, false},
		{"/sys/fs/cgroup/memory/job", container, docker, true},
		{"/sys/fs/cgroup/memory/docker", container, docker, false},
		{"/docker", "24 23 0:21 - cgroup2\nnonsense\n", plain, true},
	} {
		if got := inGroup(c.dir, c.mounts)(&Found{Groups: parseGroups(c.cgroup)}); got != c.want {
			t.Errorf("%s: %v, want %v\n%s%s", c.dir, got, c.want, c.mounts, c.cgroup)
		}
	}
}
