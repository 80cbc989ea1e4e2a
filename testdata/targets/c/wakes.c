// Threads that wait, and log each wait with the thread that ended it. Usage:
// wakes ROUNDS MICROSECONDS. A driver sleeps MICROSECONDS before it wakes each
// waiter in turn: one reads a pipe, one an eventfd, one waits for a futex. One
// more reads a pipe that a child process writes, and one only sleeps. The log is
// JSON: waits with begin, end and TID of the waker (0: a timer), and for each
// thread a span with the scheduler's account of it.
#include "prog.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

enum { PIPE, EVENT, FUTEX, CHILD, NAP, THREADS, MOST = 4096 };

struct wait {
	int waker;
	uint64_t from, to;
};

struct thread {
	const char *name;
	pthread_t id;
	int tid, n, stat;
	uint64_t from, to, ran, queued; // of the span
	struct wait waits[MOST];
};

static struct thread threads[THREADS + 1]; // the driver last
static int rounds, in[THREADS][2], event, child;
static uint64_t us;
static uint32_t word;
static pthread_barrier_t begun;

// account reads the scheduler's account of the thread and returns its time. A reading during which the thread
// lost the CPU does not count.
static uint64_t account(struct thread *t, uint64_t *ran, uint64_t *queued) {
	for (;;) {
		char b[128], *at;
		uint64_t from = prog_now();
		ssize_t n = pread(t->stat, b, sizeof b - 1, 0);
		uint64_t to = prog_now();
		if (n <= 0)
			die("schedstat");
		b[n] = 0;
		*ran = strtoull(b, &at, 10);
		*queued = strtoull(at, NULL, 10);
		if (to - from < 50000)
			return to;
	}
}

static void enter(struct thread *t) {
	t->tid = prog_tid();
	if ((t->stat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) < 0)
		die("schedstat");
	pthread_setname_np(pthread_self(), t->name);
	pthread_barrier_wait(&begun);
	pthread_barrier_wait(&begun); // main has read the signal to begin
	t->from = account(t, &t->ran, &t->queued);
}

static void leave(struct thread *t) {
	uint64_t ran, queued;
	t->to = account(t, &ran, &queued);
	t->ran = ran - t->ran;
	t->queued = queued - t->queued;
	pthread_barrier_wait(&begun);
	pthread_barrier_wait(&begun); // main has read the signal to end
}

static void waited(struct thread *t, uint64_t from, int waker) {
	if (t->n < MOST)
		t->waits[t->n++] = (struct wait){waker, from, prog_now()};
}

static void get(int fd, void *to, size_t n) {
	if (read(fd, to, n) != (ssize_t)n)
		die("read");
}

static void *waiter(void *arg) {
	struct thread *t = arg, *driver = &threads[THREADS];
	int kind = (int)(t - threads);
	enter(t);
	for (int i = 0; i < rounds; i++) {
		uint64_t eight, from = prog_now();
		char c;
		switch (kind) {
		case PIPE:
			get(in[PIPE][0], &c, 1);
			break;
		case EVENT:
			get(event, &eight, 8);
			break;
		case FUTEX:
			while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == (uint32_t)i)
				syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, (uint32_t)i, NULL, NULL, 0);
			break;
		case CHILD:
			get(in[CHILD][0], &c, 1);
			break;
		default: {
			struct timespec d = {0, (long)us * 1000};
			nanosleep(&d, NULL);
		}
		}
		waited(t, from, kind == NAP ? 0 : kind == CHILD ? child : driver->tid);
	}
	leave(t);
	return NULL;
}

static void nap(struct thread *t) {
	uint64_t from = prog_now();
	struct timespec d = {0, (long)us * 1000};
	nanosleep(&d, NULL);
	if (t)
		waited(t, from, 0);
}

static void *drive(void *arg) {
	struct thread *t = arg;
	enter(t);
	for (int i = 0; i < rounds; i++) {
		uint64_t one = 1;
		nap(t);
		if (write(in[PIPE][1], "x", 1) != 1)
			die("write");
		nap(t);
		if (write(event, &one, 8) != 8)
			die("write");
		nap(t);
		__atomic_add_fetch(&word, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	leave(t);
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	rounds = (int)prog_number(argv[1]);
	us = prog_number(argv[2]);
	int go[2];
	if (pipe(in[PIPE]) || pipe(in[CHILD]) || pipe(go) || (event = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) < 0)
		die("pipe");
	child = fork();
	if (!child) {
		char c;
		prctl(PR_SET_NAME, "outsider");
		get(go[0], &c, 1);
		for (int i = 0; i < rounds; i++) {
			nap(NULL);
			if (write(in[CHILD][1], "x", 1) != 1)
				die("write");
		}
		_exit(0);
	}
	pthread_barrier_init(&begun, NULL, THREADS + 2);
	static const char *names[] = {"pipe", "event", "futex", "child", "nap", "driver"};
	for (int i = 0; i <= THREADS; i++) {
		threads[i].name = names[i];
		if (pthread_create(&threads[i].id, NULL, i == THREADS ? drive : waiter, &threads[i]))
			die("pthread_create");
	}
	pthread_barrier_wait(&begun);
	prog_ready(1);
	pthread_barrier_wait(&begun);
	if (write(go[1], "x", 1) != 1)
		die("write");
	pthread_barrier_wait(&begun);
	waitpid(child, NULL, 0);
	printf("{\"threads\":[");
	for (int i = 0; i <= THREADS; i++) {
		struct thread *t = &threads[i];
		printf("%s{\"name\":\"%s\",\"tid\":%d,\"from\":%" PRIu64 ",\"to\":%" PRIu64 ",\"ran\":%" PRIu64 ",\"queued\":%" PRIu64 ",\"waits\":[", i ? "," : "", t->name, t->tid, t->from, t->to, t->ran, t->queued);
		for (int j = 0; j < t->n; j++)
			printf("%s[%d,%" PRIu64 ",%" PRIu64 "]", j ? "," : "", t->waits[j].waker, t->waits[j].from, t->waits[j].to);
		printf("]}");
	}
	printf("],\"child\":%d}\n", child);
	fflush(stdout);
	prog_await(); // the recording ends before the threads are gone
	pthread_barrier_wait(&begun);
	for (int i = 0; i <= THREADS; i++)
		pthread_join(threads[i].id, NULL);
	return 0;
}
