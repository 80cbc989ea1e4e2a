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
		{"a-very-long-nam", "/opt/a-very-long-name-indeed", []string{"x"}, "a-very-long-nam"},
		{"python3", "/usr/bin/python3.11", []string{"python3", "app.py"}, "python3"},
		{"nginx", "/usr/sbin/nginx", []string{"nginx: worker process"}, "nginx"},
		{"", "/bin/x", nil, "x"},
	} {
		if got := programName(c.comm, c.exe, c.args); got != c.want {
			t.Errorf("%q %q %q: %q, want %q", c.comm, c.exe, c.args, got, c.want)
		}
	}
}
