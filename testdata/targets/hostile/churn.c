// Threads that live for a moment each, as many as the kernel makes, with names that no two share.
// Options: --at-once N (threads that live at the same time), --wait-go.
#include "prog.h"

#include <sched.h>
#include <stdatomic.h>

static atomic_int living;

FRAME void churn_work(void) { prog_spin(prog_now() + 20000); }

static void *life(void *arg) {
	char name[16];
	snprintf(name, sizeof name, "%015llx", (unsigned long long)(uintptr_t)arg * 0x9e3779b97f4a7c15ull >> 4);
	pthread_setname_np(pthread_self(), name);
	churn_work();
	atomic_fetch_sub(&living, 1);
	return NULL;
}

int main(int argc, char **argv) {
	int most = 8, wait_go = 0;
	static const struct option longs[] = {{"at-once", 1, 0, 'n'}, {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (c) {
		case 'n': most = (int)prog_number(optarg); break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&a, 64 << 10);
	prog_ready(wait_go);
	for (uintptr_t i = 1;; i++) {
		while (atomic_load(&living) >= most)
			sched_yield();
		pthread_t t;
		atomic_fetch_add(&living, 1);
		if (pthread_create(&t, &a, life, (void *)i))
			atomic_fetch_sub(&living, 1);
	}
}
