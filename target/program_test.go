package target

import "testing"

func TestProgramName(t *testing.T) {
	for _, c := range []struct {
		comm, exe string
		args      []string
		want      string
	}{
		{"node", "/usr/bin/node", []string{"node", "app.js"}, "node"},
		{"MainThread", "/usr/bin/node", []string{"node", "app.js"}, "node"},
		{"MainThread", "/usr/bin/node (deleted)", []string{"node", "app.js"}, "node"},
		{"MainThread", "", nil, "MainThread"},
		{"app.py", "/usr/bin/python3.11", []string{"/usr/bin/python3", "./app.py"}, "app.py"},
		{"app.py", "/usr/bin/python3.11", []string{"/usr/bin/python3", "-u", "/srv/app.py", "x"}, "app.py"},
		{"sh", "/usr/bin/busybox", []string{"sh"}, "sh"},
		{"bash", "/usr/bin/bash", []string{"-bash"}, "bash"},
		{"a-very-long-nam", "/opt/a-very-long-name-indeed", []string{"x"}, "a-very-long-name-indeed"},
		{"a-very-long-nam", "/opt/target-of-link", []string{"/bin/a-very-long-name-indeed", "-x"}, "a-very-long-name-indeed"},
		{"redis-server", "/usr/bin/redis-check-rdb", []string{"redis-server", "*:6379"}, "redis-server"},
		{"redis-server", "/usr/bin/redis-check-rdb", []string{"/usr/bin/redis-server 127.0.0.1:6379"}, "redis-server"},
		{"gunicorn: maste", "/usr/bin/python3.11", []string{"gunicorn: master [app:app]"}, "gunicorn"},
		{"sshd", "/usr/sbin/sshd-session", []string{"sshd: someone@pts/0"}, "sshd"},
		{"pool-1", "/usr/bin/redis-check-rdb", []string{"redis-server"}, "redis-check-rdb"},
		{"my app", "/opt/my tools/my app", []string{"/opt/my tools/my app"}, "my app"},
		{"sh", "/usr/bin/busybox", []string{"/bin/sh", "-c", "x"}, "sh"},
		{"bash", "/usr/bin/target", []string{"-bash"}, "bash"},
		{"python3", "/usr/bin/python3.11", []string{"python3", "app.py"}, "python3"},
		{"nginx", "/usr/sbin/nginx", []string{"nginx: worker process"}, "nginx"},
		{"", "/bin/x", nil, "x"},
	} {
		if got := programName(c.comm, c.exe, c.args); got != c.want {
			t.Errorf("%q %q %q: %q, want %q", c.comm, c.exe, c.args, got, c.want)
		}
	}
}
