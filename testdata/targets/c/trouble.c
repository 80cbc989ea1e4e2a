// A server that gets into trouble on command, to test a flight recorder's
// triggers. main runs an event loop (epoll) with a timer of
// 5 ms, and reads commands from standard input, one a line; workers take turns
// with short requests. Each command is answered with its own line when it has
// started (those of main: when it is over), with the time (ns of
// CLOCK_MONOTONIC) at which it began:
//
//	spin MS      main computes in compute_report
//	sleep MS     main sleeps in wait_for_disk
//	slow MS      a worker takes MS in slow_request
//	lock MS      a worker waits for a mutex in take_ledger
//	deadlock     two threads wait for each other
//	burn MS      a thread called burner computes
//	leak MIB     memory is allocated and touched in leak_memory
//	fds N        N descriptors are opened
//	threads N    N threads are started
//	mark         a worker is in marker_function for 100 ms
//	touch        a worker calls empty_marker, which does nothing
//	write PATH   a file is written
//	crash        main follows a null pointer, 300 ms into broken_handler
//	die          main follows a null pointer at once, in fatal_step
//	exit         it ends
#include "prog.h"
#include <sys/epoll.h>
#include <sys/timerfd.h>

#define WORKERS 3
#define MS 1000000u

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_barrier_t both;

// Tasks of the workers apart from their requests: taken by one of them.
static volatile uint64_t slow_ms, lock_ms, mark_now, touch_now;
static volatile uint64_t served;

static void nap(uint64_t ns) {
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

FRAME void compute_report(uint64_t ms) { prog_spin(prog_now() + ms * MS); }
FRAME void wait_for_disk(uint64_t ms) {
	nap(ms * MS);
	__asm__ volatile("" ::: "memory");
}
FRAME void slow_request(uint64_t ms) {
	nap(ms * MS);
	__asm__ volatile("" ::: "memory");
}
FRAME void marker_function(void) { prog_spin(prog_now() + 100 * MS); }

FRAME void empty_marker(void) { __asm__ volatile("" ::: "memory"); }

FRAME void handle_request(unsigned k) {
	prog_spin(prog_now() + (50 + 37 * k % 200) * 1000u);
	__atomic_fetch_add(&served, 1, __ATOMIC_RELAXED);
}

FRAME void take_ledger(void) {
	pthread_mutex_lock(&ledger);
	pthread_mutex_unlock(&ledger);
}

static void *ledger_keeper(void *arg) {
	pthread_setname_np(pthread_self(), "keeper");
	pthread_mutex_lock(&ledger);
	lock_ms = 1; // from here on a worker may wait
	nap((uint64_t)(uintptr_t)arg * MS);
	pthread_mutex_unlock(&ledger);
	return NULL;
}

static void *worker(void *arg) {
	unsigned k = (unsigned)(uintptr_t)arg;
	for (;; k++) {
		handle_request(k);
		uint64_t ms = slow_ms;
		if (ms && __sync_bool_compare_and_swap(&slow_ms, ms, 0))
			slow_request(ms);
		if (lock_ms && __sync_bool_compare_and_swap(&lock_ms, 1, 0))
			take_ledger();
		if (mark_now && __sync_bool_compare_and_swap(&mark_now, 1, 0))
			marker_function();
		if (touch_now && __sync_bool_compare_and_swap(&touch_now, 1, 0))
			empty_marker();
		nap(4 * MS);
	}
	return NULL;
}

FRAME void lock_second(int i) {
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&locks[1 - i]);
	__asm__ volatile("" ::: "memory"); // no tail call: it has a frame while it waits
}

static void *locker(void *arg) {
	int i = (int)(uintptr_t)arg;
	pthread_setname_np(pthread_self(), i ? "dead-1" : "dead-0");
	pthread_mutex_lock(&locks[i]);
	lock_second(i);
	return NULL;
}

FRAME void burn(uint64_t ms) { prog_spin(prog_now() + ms * MS); }

static void *burner(void *arg) {
	pthread_setname_np(pthread_self(), "burner");
	burn((uint64_t)(uintptr_t)arg);
	return NULL;
}

static void *idler(void *arg) {
	for (;;)
		nap(1000u * MS);
	return arg;
}

static void start(void *(*f)(void *), uint64_t arg) {
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 256 << 10);
	if (pthread_create(&t, &a, f, (void *)(uintptr_t)arg))
		die("pthread_create");
	pthread_detach(t);
}

FRAME void leak_memory(uint64_t mib) {
	char *p = malloc(mib << 20);
	if (!p)
		die("malloc");
	memset(p, 1, mib << 20);
	__asm__ volatile("" ::"r"(p) : "memory");
}

FRAME void broken_handler(void) {
	prog_spin(prog_now() + 300 * MS); // on a busy machine it may be without a CPU for a third of it
	volatile int *p = NULL;
	__asm__ volatile("" : "+r"(p));
	*p = 1;
}

FRAME void fatal_step(void) {
	volatile int *p = NULL;
	__asm__ volatile("" : "+r"(p));
	*p = 1;
	__asm__ volatile("" ::: "memory");
}

FRAME void handle_command(char *line) {
	uint64_t begin = prog_now(), n = 0;
	char *arg = strchr(line, ' ');
	if (arg) {
		*arg++ = 0;
		n = strtoull(arg, NULL, 10);
	}
	if (!strcmp(line, "spin")) compute_report(n);
	else if (!strcmp(line, "sleep")) wait_for_disk(n);
	else if (!strcmp(line, "slow")) slow_ms = n;
	else if (!strcmp(line, "lock")) start(ledger_keeper, n);
	else if (!strcmp(line, "deadlock")) {
		start(locker, 0);
		start(locker, 1);
	} else if (!strcmp(line, "burn")) start(burner, n);
	else if (!strcmp(line, "leak")) leak_memory(n);
	else if (!strcmp(line, "fds")) {
		while (n--)
			if (dup(1) < 0)
				die("dup");
	} else if (!strcmp(line, "threads")) {
		while (n--)
			start(idler, 0);
	} else if (!strcmp(line, "mark")) mark_now = 1;
	else if (!strcmp(line, "touch")) touch_now = 1;
	else if (!strcmp(line, "write") && arg) {
		FILE *f = fopen(arg, "a");
		if (!f || fputs("written\n", f) < 0 || fclose(f))
			die(arg);
	} else if (!strcmp(line, "crash")) broken_handler();
	else if (!strcmp(line, "die")) fatal_step();
	else if (!strcmp(line, "exit")) exit(0);
	else exit(2);
	printf("%s %" PRIu64 "\n", line, begin);
	fflush(stdout);
}

FRAME void handle_tick(int fd) {
	uint64_t n;
	if (read(fd, &n, sizeof n) == sizeof n)
		prog_spin(prog_now() + 100000u);
}

FRAME void handle_input(void) {
	static char line[4096];
	static size_t len;
	ssize_t n = read(0, line + len, sizeof line - 1 - len);
	if (n <= 0)
		exit(n ? 3 : 0);
	len += (size_t)n;
	for (char *end; (end = memchr(line, '\n', len)) != NULL;) {
		*end = 0;
		size_t used = (size_t)(end + 1 - line);
		handle_command(line);
		memmove(line, line + used, len -= used);
	}
}

FRAME void event_loop(int ep, int timer) {
	for (;;) {
		struct epoll_event e[8];
		int n = epoll_wait(ep, e, 8, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (int i = 0; i < n; i++)
			if (e[i].data.fd == timer)
				handle_tick(timer);
			else
				handle_input();
	}
}

int main(void) {
	pthread_barrier_init(&both, NULL, 2);
	for (unsigned k = 0; k < WORKERS; k++) {
		pthread_t t;
		if (pthread_create(&t, NULL, worker, (void *)(uintptr_t)k))
			die("pthread_create");
		char name[16];
		snprintf(name, sizeof name, "worker-%u", k);
		pthread_setname_np(t, name);
	}
	int timer = timerfd_create(CLOCK_MONOTONIC, 0), ep = epoll_create1(0);
	struct itimerspec every = {{0, 5 * MS}, {0, 5 * MS}};
	struct epoll_event in = {EPOLLIN, {.fd = 0}}, tick = {EPOLLIN, {.fd = timer}};
	if (timer < 0 || ep < 0 || timerfd_settime(timer, 0, &every, NULL) || epoll_ctl(ep, EPOLL_CTL_ADD, 0, &in) ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, timer, &tick))
		die("event loop");
	prog_ready(0);
	printf("serving\n");
	fflush(stdout);
	event_loop(ep, timer);
}
