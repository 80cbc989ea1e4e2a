// One thread that sleeps in epoll_wait with a timeout, again and again, called
// by functions that keep a frame pointer: doze, whose frame size is known from
// the code, and dream, whose frame size is known only at run time. Options: --wait-go.
// Runs until it is killed.
#include "prog.h"
#include <sys/epoll.h>

static int set;

// doze keeps something on the stack while it sleeps.
FRAME int doze(int ms) {
	struct epoll_event got[4];
	int n = epoll_wait(set, got, 4, ms);
	return n < 0 ? n : n + (int)sizeof got;
}

FRAME int dream(int ms, int size) {
	char pad[size];
	pad[0] = 1;
	__asm__ volatile("" ::"r"(pad) : "memory");
	struct epoll_event got[4];
	int n = epoll_wait(set, got, 4, ms);
	return n + pad[0];
}

FRAME void night(void) {
	for (int i = 0;; i++)
		if (doze(120) < 0 || dream(60, 100 + i % 1000) < 0)
			die("epoll_wait");
}

int main(int argc, char **argv) {
	if ((set = epoll_create1(0)) < 0)
		die("epoll_create1");
	prog_ready(argc > 1 && !strcmp(argv[1], "--wait-go"));
	night();
	return 0;
}
