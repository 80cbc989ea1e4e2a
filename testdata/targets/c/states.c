// Threads that are in one state each, and log when. Usage: states STATE SECONDS
// MICROSECONDS; a state is held for about MICROSECONDS at a time, with
// about 10 ms on the CPU in between. STATE is
//   running   it computes
//   runnable  three threads want one CPU
//   blocked   it sleeps in read of a pipe, until another thread writes
//   fault     it sleeps in a page fault, until another thread fills the page
//   disk      it sleeps uninterruptibly: in vfork, until the child ends
// The output is that of turns.h, with the state's number in package stack
// instead of a lock. For runnable, the holds give how long a thread has waited for a
// CPU until then, instead of a lock.
#include "turns.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

enum { RUNNING = 1, RUNNABLE, BLOCKED, DISK, FAULT };

static uint64_t hold_us;
static int uffd = -1, pair[2];
static long page;

static void state(int tid, int number, uint64_t from, uint64_t to) { turns_waited(tid, (void *)(intptr_t)number, from, to); }

static uint64_t run_delay(void) {
	char b[128];
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, b, sizeof b - 1);
	close(fd);
	if (n <= 0)
		die("schedstat");
	b[n] = 0;
	char *at;
	strtoull(b, &at, 10);
	return strtoull(at, NULL, 10);
}

static void between(unsigned *seed) { prog_spin(prog_now() + 9000000 + (uint64_t)rand_r(seed) % 3000000); }

FRAME void compute(uint64_t until) { prog_spin(until); }

static void *runs(void *arg) {
	int tid = turns_enter((int)(intptr_t)arg);
	while (turns_on()) {
		uint64_t from = prog_now();
		compute(from + hold_us * 1000);
		state(tid, RUNNING, from, prog_now());
		turns_sleep(10000);
	}
	return NULL;
}

static void *competes(void *arg) {
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof one, &one))
		die("sched_setaffinity");
	int tid = turns_enter((int)(intptr_t)arg);
	while (turns_on()) {
		uint64_t delay = run_delay(), now = prog_now();
		turns_held(tid, (void *)(uintptr_t)delay, now, now);
		compute(now + 3000000);
	}
	return NULL;
}

static void *reads(void *arg) {
	unsigned seed = 1;
	char c;
	int tid = turns_enter((int)(intptr_t)arg);
	for (;;) {
		uint64_t from = prog_now();
		if (read(pair[0], &c, 1) != 1)
			return NULL;
		state(tid, BLOCKED, from, prog_now());
		between(&seed);
	}
}

static void writes(void) {
	unsigned seed = 2;
	while (turns_on()) {
		turns_work(&seed, hold_us);
		if (write(pair[1], "x", 1) != 1)
			die("write");
	}
	close(pair[1]);
}

FRAME int touch(volatile char *p) { return *p; }

static char *area;
enum { PAGES = 4096 };

static void *faults(void *arg) {
	unsigned seed = 1;
	int tid = turns_enter((int)(intptr_t)arg);
	for (int i = 0; i < PAGES && turns_on(); i++) {
		uint64_t from = prog_now();
		touch(area + i * page);
		state(tid, FAULT, from, prog_now());
		between(&seed);
	}
	close(pair[1]);
	return NULL;
}

static void fills(void) {
	unsigned seed = 2;
	struct pollfd p[2] = {{uffd, POLLIN, 0}, {pair[0], 0, 0}};
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			die("poll");
		struct uffd_msg m;
		if (p[0].revents & POLLIN && read(uffd, &m, sizeof m) == sizeof m && m.event == UFFD_EVENT_PAGEFAULT) {
			turns_sleep(hold_us / 2 + (uint64_t)rand_r(&seed) % hold_us);
			struct uffdio_zeropage z = {.range = {m.arg.pagefault.address & ~(uint64_t)(page - 1), (uint64_t)page}};
			if (ioctl(uffd, UFFDIO_ZEROPAGE, &z))
				die("UFFDIO_ZEROPAGE");
		} else if (p[1].revents & POLLHUP)
			return;
	}
}

static void *vforks(void *arg) {
	unsigned seed = 1;
	int tid = turns_enter((int)(intptr_t)arg);
	while (turns_on()) {
		uint64_t us = hold_us / 2 + (uint64_t)rand_r(&seed) % hold_us;
		struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
		uint64_t from = prog_now();
		pid_t child = vfork();
		if (child == 0) {
			nanosleep(&t, NULL);
			_exit(0);
		}
		state(tid, DISK, from, prog_now());
		if (child < 0)
			die("vfork");
		waitpid(child, NULL, 0);
		between(&seed);
	}
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	const char *which = argv[1];
	uint64_t seconds = prog_number(argv[2]);
	hold_us = prog_number(argv[3]);
	void *(*body)(void *) = NULL;
	void (*other)(void) = NULL;
	int n = 1;
	if (!strcmp(which, "running"))
		body = runs;
	else if (!strcmp(which, "runnable"))
		body = competes, n = 3;
	else if (!strcmp(which, "blocked"))
		body = reads, other = writes;
	else if (!strcmp(which, "fault"))
		body = faults, other = fills;
	else if (!strcmp(which, "disk"))
		body = vforks;
	if (!body || hold_us == 0)
		return 2;
	page = sysconf(_SC_PAGESIZE);
	prog_ready(0);
	turns_init();
	if (pipe(pair))
		die("pipe");
	if (body == faults) {
		uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
		struct uffdio_api api = {.api = UFFD_API};
		area = (char *)mmap(NULL, (size_t)(PAGES * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct uffdio_register r = {.range = {(uint64_t)(uintptr_t)area, (uint64_t)(PAGES * page)}, .mode = UFFDIO_REGISTER_MODE_MISSING};
		if (uffd < 0 || area == MAP_FAILED || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &r)) {
			printf("no userfaultfd: %s\n", strerror(errno));
			return 4;
		}
	}
	pthread_t t[TURNS_THREADS];
	for (int i = 0; i < n; i++)
		if (pthread_create(&t[i], NULL, body, (void *)(intptr_t)i))
			die("pthread_create");
	turns_start(NULL, n, n, seconds);
	if (other)
		other();
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	turns_report();
	return 0;
}
