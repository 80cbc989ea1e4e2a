// A small server that is nice to look at: main takes orders, cooks work on
// them and fight for one oven, a clerk writes to disk, a porter polls. What
// they wait for lasts for milliseconds. Options: --seconds N, --cooks N,
// --wait-go. Prints nothing.
#include "prog.h"
#include <fcntl.h>

enum { MAX_COOKS = 16, QUEUE = 64 };

static pthread_mutex_t oven = PTHREAD_MUTEX_INITIALIZER, queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static int queued, done_orders;
static uint64_t end;
static int journal_fd, bell[2];

static void pause_us(long us) {
	struct timespec t = {us / 1000000, us % 1000000 * 1000};
	nanosleep(&t, NULL);
}

#define BUSY(us) prog_spin(prog_now() + (uint64_t)(us) * 1000u)
#define AFTER __asm__ volatile("" ::: "memory")

FRAME static void knead(unsigned *seed) {
	BUSY(500 + rand_r(seed) % 2500);
	AFTER;
}

FRAME static void season(unsigned *seed) {
	BUSY(200 + rand_r(seed) % 900);
	AFTER;
}

FRAME static void prepare_dough(unsigned *seed) {
	for (int i = 0; i < 3; i++) {
		knead(seed);
		season(seed);
	}
	AFTER;
}

FRAME static void heat(unsigned *seed) {
	BUSY(1500 + rand_r(seed) % 4000);
	AFTER;
}

FRAME static void watch_crust(unsigned *seed) {
	pause_us(6000 + rand_r(seed) % 14000);
	AFTER;
}

FRAME static void bake(unsigned *seed) {
	pthread_mutex_lock(&oven);
	heat(seed);
	watch_crust(seed);
	pthread_mutex_unlock(&oven);
	AFTER;
}

FRAME static void serve_order(unsigned *seed) {
	BUSY(400 + rand_r(seed) % 600);
	__atomic_add_fetch(&done_orders, 1, __ATOMIC_RELAXED);
	AFTER;
}

FRAME static void handle_order(unsigned *seed) {
	prepare_dough(seed);
	bake(seed);
	serve_order(seed);
	AFTER;
}

FRAME static int next_order(void) {
	pthread_mutex_lock(&queue_lock);
	while (!queued && prog_now() < end) {
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_sec++;
		pthread_cond_timedwait(&queue_filled, &queue_lock, &t);
	}
	int got = queued > 0;
	queued -= got;
	pthread_mutex_unlock(&queue_lock);
	AFTER;
	return got;
}

static void named(const char *fmt, int n) {
	char b[16];
	snprintf(b, sizeof b, fmt, n);
	pthread_setname_np(pthread_self(), b);
}

static void *cook(void *arg) {
	unsigned seed = (unsigned)(uintptr_t)arg + 7;
	named("cook-%d", (int)(uintptr_t)arg);
	while (prog_now() < end)
		if (next_order())
			handle_order(&seed);
	return NULL;
}

FRAME static void write_journal(unsigned *seed) {
	char b[4096];
	memset(b, (int)(rand_r(seed) & 0x7f), sizeof b);
	for (int i = 0; i < 64; i++)
		if (pwrite(journal_fd, b, sizeof b, i * (off_t)sizeof b) < 0)
			die("journal");
	fsync(journal_fd);
	AFTER;
}

static void *clerk(void *arg) {
	unsigned seed = 3;
	(void)arg;
	named("clerk", 0);
	while (prog_now() < end) {
		write_journal(&seed);
		pause_us(30000);
	}
	return NULL;
}

FRAME static void await_bell(void) {
	struct pollfd p = {bell[0], POLLIN, 0};
	char c;
	if (poll(&p, 1, 1000) > 0 && read(bell[0], &c, 1) < 0)
		die("bell");
	AFTER;
}

static void *porter(void *arg) {
	(void)arg;
	named("porter", 0);
	while (prog_now() < end)
		await_bell();
	return NULL;
}

FRAME static void take_order(unsigned *seed) {
	BUSY(800 + rand_r(seed) % 1500);
	pthread_mutex_lock(&queue_lock);
	if (queued < QUEUE)
		queued++;
	pthread_cond_signal(&queue_filled);
	pthread_mutex_unlock(&queue_lock);
	AFTER;
}

FRAME static void ring_bell(void) {
	if (write(bell[1], "!", 1) < 0)
		die("bell");
	AFTER;
}

FRAME static void reception(void) {
	unsigned seed = 1;
	for (int i = 0; prog_now() < end; i++) {
		take_order(&seed);
		if (i % 5 == 0)
			ring_bell();
		pause_us(4000 + rand_r(&seed) % 9000);
	}
	AFTER;
}

int main(int argc, char **argv) {
	uint64_t seconds = 10;
	int cooks = 4, wait_go = 0;
	struct option o[] = {{"seconds", 1, 0, 's'}, {"cooks", 1, 0, 'c'}, {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", o, NULL)) != -1;) {
		switch (c) {
		case 's': seconds = prog_number(optarg); break;
		case 'c': cooks = (int)prog_number(optarg); break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	}
	if (cooks < 1 || cooks > MAX_COOKS)
		return 2;
	char path[] = "/tmp/kitchen-XXXXXX";
	if ((journal_fd = mkstemp(path)) < 0 || unlink(path) || pipe(bell))
		die("set up");
	prog_ready(wait_go);
	end = prog_now() + seconds * 1000000000u;
	pthread_t t[MAX_COOKS + 2];
	for (int i = 0; i < cooks; i++)
		pthread_create(&t[i], NULL, cook, (void *)(uintptr_t)(i + 1));
	pthread_create(&t[cooks], NULL, clerk, NULL);
	pthread_create(&t[cooks + 1], NULL, porter, NULL);
	reception();
	for (int i = 0; i < cooks + 2; i++)
		pthread_join(t[i], NULL);
	return 0;
}
