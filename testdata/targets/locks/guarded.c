// A lock of a library that is loaded in mid-run, a thread that holds it and one
// that waits for it. Usage: guarded LIBRARY WHICH (0: guard, 1: hidden).
// Prints {"lock":"0x…","holder":TID,"waiters":[TID]} once it is held, and waits
// for a line on standard input.
#include "prog.h"
#include <dlfcn.h>

static int (*enter)(int);
static int which;
static int tid;
static pthread_barrier_t told;

static void *waiter(void *arg) {
	(void)arg;
	tid = prog_tid();
	pthread_barrier_wait(&told);
	enter(which);
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	void *lib = dlopen(argv[1], RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 3;
	}
	which = atoi(argv[2]);
	void *(*of)(int);
	*(void **)&of = dlsym(lib, "guard_of");
	*(void **)&enter = dlsym(lib, "guard_enter");
	if (!of || !enter || enter(which))
		return 3;
	pthread_t t;
	pthread_barrier_init(&told, NULL, 2);
	if (pthread_create(&t, NULL, waiter, NULL))
		die("pthread_create");
	pthread_barrier_wait(&told);
	printf("{\"lock\":\"%p\",\"holder\":%d,\"waiters\":[%d]}\n", of(which), (int)getpid(), tid);
	fflush(stdout);
	(void)getchar();
	return 0;
}
