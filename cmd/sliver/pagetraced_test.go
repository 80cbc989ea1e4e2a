package main

import (
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestPageTraced looks at the tab of traced calls of a program whose slow calls wait.
func TestPageTraced(t *testing.T) {
	testprog.Whole(t, "TestTracedFunctions of package report has the numbers")
	testprog.Need(t, "gcc", "ptrace", "node", "chromium", "npm")
	dir := t.TempDir()
	const code = `#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile long sum;
__attribute__((noinline)) static void query(void) {
	struct timespec t = {0, 30000000};
	nanosleep(&t, NULL);
	sum++;
}
__attribute__((noinline)) static void handle_request(int i) {
	for (int k = 0; k < 100000; k++) sum += k;
	if (i % 20 == 0) query();
	sum++;
}
int main(void) {
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (int i = 0; i < 60000; i++) { // five minutes at most
		handle_request(i);
		usleep(5000);
	}
}
`
	program := testprog.GCC(t, "shop", code, "-O1", "-g")
	p := testprog.Start(t, program)
	p.Ready()
	if r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "4s", "--trace", "handle_request", "-o", "run.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	runPage(t, "traced.mjs", bin, filepath.Join(dir, "run.sliver"), "handle_request", pidOf(p), filepath.Join(dir, "live.sliver"))
}
