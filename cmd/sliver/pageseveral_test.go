package main

import (
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// startsWorkers starts a process for each SIGUSR1 and ends its oldest one for SIGUSR2. A worker starts a
// thread for SIGUSR1.
const startsWorkers = `#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void child_work(void) {
	for (int i = 0; i < 400000; i++) sink += i;
	__asm__ volatile("");
}
static volatile sig_atomic_t more;
static void ask(int s) { more = 1; }
static void *thread(void *x) {
	for (;;) { child_work(); usleep(20000); }
}
static void work(void) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGUSR1, ask);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	alarm(120);
	for (;;) {
		pthread_t t;
		if (more && !(more = 0)) pthread_create(&t, NULL, thread, NULL);
		child_work();
		usleep(5000);
	}
}
int main(void) {
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	printf("ready %d\n", getpid());
	fflush(stdout);
	alarm(120);
	pid_t all[64];
	for (int s, n = 0, gone = 0; n < 64 && !sigwait(&set, &s);) {
		if (s == SIGUSR1) {
			if (!(all[n++] = fork())) work();
		} else if (gone < n) {
			kill(all[gone], SIGKILL);
			waitpid(all[gone++], NULL, 0);
		}
	}
}
`

// TestPageSeveral: the live page of a process with its children, while it starts and ends them: see
// web/page/test/several.mjs.
func TestPageSeveral(t *testing.T) {
	testprog.Whole(t, "TestPageOfCommand has such a page, TestPage the groups")
	testprog.Need(t, "gcc", "ptrace", "node", "chromium", "npm")
	dir := t.TempDir()
	program := testprog.GCC(t, "workers", startsWorkers, "-O1", "-g", "-pthread")
	p := testprog.Start(t, program)
	p.Ready()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	runPage(t, "several.mjs", bin, filepath.Join(dir, "several.sliver"), pidOf(p))
	checkFree(t, p.PID)
}
