package report

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

// build are processes of make -j2.
var build = []Process{
	{PID: 1, Name: "make", Begin: 0, End: 100},
	{PID: 2, Parent: 1, Name: "gcc a", Begin: 5, End: 40}, {PID: 3, Parent: 2, Name: "cc1 a", Begin: 6, End: 38},
	{PID: 4, Parent: 1, Name: "gcc b", Begin: 5, End: 50}, {PID: 5, Parent: 4, Name: "cc1 b", Begin: 6, End: 49},
	{PID: 6, Parent: 1, Name: "gcc c", Begin: 40, End: 90}, {PID: 7, Parent: 6, Name: "cc1 c", Begin: 41, End: 88},
	{PID: 8, Parent: 1, Name: "ld", Begin: 92, End: 99},
	{PID: 9, Parent: 0, Name: "stranger", Begin: 0, End: 100},
}

func TestTextOfProcesses(t *testing.T) {
	r := &Report{Processes: build, CriticalPath: []Step{
		{PID: 1, Name: "make", Duration: 5}, {PID: 3, Name: "cc1 a", Begin: 5, Duration: 35}, {PID: 7, Name: "cc1 c", Begin: 40, Duration: 52, WaiterPID: 1, Waiter: "make", How: "end"}, {PID: 8, Name: "ld", Begin: 92, Duration: 8}}, OnPath: []OnPath{{Name: "all", Total: 100}}}
	r.Processes[7].Command = "/usr/bin/ld -s --gc " + strings.Repeat("x", 200) + ".o last.o"
	var out bytes.Buffer
	b := bufio.NewWriter(&out)
	r.textProcesses(b, 3)
	b.Flush()
	text := out.String()
	for _, want := range []string{"Processes (6 more", "Critical path", "(1 more", "52.0%", "cc1 c", "make (1), end"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := command("ld", r.Processes[7].Command); len([]rune(got)) > maxCommand || !strings.HasPrefix(got, "ld x") || !strings.HasSuffix(got, " last.o") {
		t.Errorf("command %q", got)
	}
	if got := command("cc1", "/usr/lib/gcc/cc1 -quiet -imultiarch x86_64-linux-gnu -D LUA_USE_LINUX lapi.c -quiet -dumpbase lapi.c -dumpbase-ext .c -mtune=generic -o /tmp/cc.s"); got != "cc1 lapi.c /tmp/cc.s" {
		t.Errorf("%q", got)
	}
	if got := command("cc1", "/usr/lib/gcc/cc1 -quiet "+strings.Repeat("-f", 50)+" main.c -o /tmp/cc.s"); got != "cc1 main.c /tmp/cc.s" {
		t.Errorf("command %q", got)
	}
	script := `"while [ $i -lt \"9\" ]; do i=$((i+1)); done; exit"` // one argument: no part of it is an option
	if got := command("sh", "/bin/sh --login -e -x -u -v -c "+script); got != "sh "+script {
		t.Errorf("sh: %q", got)
	}
	if got := command("xargs", `/usr/bin/xargs -P2 -I{} sh -c "gzip -9 -k {} && rm -f {} && echo {} was packed now"`); got != `xargs sh "gzip -9 -k {} && rm -f {} && echo {} was packed now"` {
		t.Error(got)
	}
	if got := command("nginx", `"nginx: master process /usr/sbin/nginx -g daemon off;"`); got != `"nginx: master process /usr/sbin/nginx -g daemon off;"` {
		t.Errorf("a title: %q", got)
	}
	if got := command("x", "  "); got != "x" {
		t.Errorf("an empty command is %q", got)
	}
	out.Reset()
	(&Report{}).textProcesses(b, 3)
	b.Flush()
	if out.Len() > 0 {
		t.Errorf("a report of one process has a table of processes: %s", out.String())
	}
}
