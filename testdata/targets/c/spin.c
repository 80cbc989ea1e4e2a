// Thirty different frames deep, a thread spins and counts: what a sampler
// costs its target shows in the count. Options: --seconds N, --threads N
// (that many spin, main included), --wait-go. Prints {"loops":N,"ns":N}:
// the loops of all threads and the longest time that one took.
#include "prog.h"

static uint64_t seconds = 1;

struct turn {
	pthread_t thread;
	uint64_t loops, ns;
};

FRAME void spin_0(struct turn *t) {
	uint64_t begin = prog_now(), end = begin + seconds * 1000000000u;
	t->loops = prog_spin(end);
	t->ns = prog_now() - begin;
}

#define SPIN(N, NEXT) \
	FRAME void spin_##N(struct turn *t) { \
		spin_##NEXT(t); \
		__asm__ volatile("" ::: "memory"); \
	}
SPIN(1, 0) SPIN(2, 1) SPIN(3, 2) SPIN(4, 3) SPIN(5, 4) SPIN(6, 5) SPIN(7, 6) SPIN(8, 7) SPIN(9, 8) SPIN(10, 9)
SPIN(11, 10) SPIN(12, 11) SPIN(13, 12) SPIN(14, 13) SPIN(15, 14) SPIN(16, 15) SPIN(17, 16) SPIN(18, 17)
SPIN(19, 18) SPIN(20, 19) SPIN(21, 20) SPIN(22, 21) SPIN(23, 22) SPIN(24, 23) SPIN(25, 24) SPIN(26, 25)
SPIN(27, 26) SPIN(28, 27) SPIN(29, 28)

static pthread_barrier_t barrier;

static void *spinner(void *arg) {
	pthread_barrier_wait(&barrier);
	spin_29((struct turn *)arg);
	return NULL;
}

int main(int argc, char **argv) {
	uint64_t threads = 1;
	int wait_go = 0;
	static const struct option longs[] = {
	    {"seconds", 1, 0, 's'}, {"threads", 1, 0, 't'}, {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (c) {
		case 's': seconds = prog_number(optarg); break;
		case 't': threads = prog_number(optarg); break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	if (threads < 1 || threads > 256 || optind != argc)
		return 2;
	struct turn *turns = (struct turn *)calloc(threads, sizeof *turns);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	for (uint64_t k = 1; k < threads; k++) {
		if (pthread_create(&turns[k].thread, NULL, spinner, &turns[k]))
			die("pthread_create");
		char name[16];
		snprintf(name, sizeof name, "spin-%d", (int)k);
		pthread_setname_np(turns[k].thread, name);
	}
	prog_ready(wait_go);
	spinner(&turns[0]);
	uint64_t loops = 0, ns = 0;
	for (uint64_t k = 0; k < threads; k++) {
		if (k > 0)
			pthread_join(turns[k].thread, NULL);
		loops += turns[k].loops;
		if (turns[k].ns > ns)
			ns = turns[k].ns;
	}
	printf("{\"loops\":%" PRIu64 ",\"ns\":%" PRIu64 "}\n", loops, ns);
	return 0;
}
