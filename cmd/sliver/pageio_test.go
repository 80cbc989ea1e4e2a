package main

import (
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestPageIO: the page of a recording with I/O has the findings and the files in a tab, and a track for each
// of the files: see web/page/test/io.mjs.
func TestPageIO(t *testing.T) {
	testprog.Whole(t, "TestRecordIO has the findings, and TestPage the tracks and tabs")
	testprog.Need(t, "gcc", "ptrace", "node", "chromium", "npm")
	dir := t.TempDir()
	log := filepath.Join(dir, "app.log")
	const code = `#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) static int append(int f) {
	char line[100] = {'x'};
	for (int i = 0; i < 10; i++)
		if (write(f, line, sizeof line) < 0) return 1;
	return fsync(f);
}
int main(int n, char **v) {
	int f = open(v[1], O_CREAT | O_WRONLY | O_APPEND, 0600);
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (int i = 0; i < 12000 && !append(f); i++) usleep(5000); // a minute at most
}
`
	program := testprog.GCC(t, "logger", code, "-O1", "-g")
	p := testprog.Start(t, program, log)
	p.Ready()
	if r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "4s", "--io", "-o", "io.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	runPage(t, "io.mjs", bin, filepath.Join(dir, "io.sliver"), log, "append")
}
