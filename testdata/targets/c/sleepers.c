// Threads that block, each in one of the calls that a careless tracer
// interrupts, beside others that spin. Options: --sleepers N, --running N,
// --seconds N, --timed (the blocking calls have a timeout of 150 ms and are
// made again and again, instead of one that outlasts the program),
// --wait-go.
// Prints {"interrupted":{"epoll_wait":N,…},"early":N,"late":N,"rounds":N}:
// how often each call returned EINTR, how many timed calls returned before
// their time or more than a second after it, and how many returned at all.
#include "prog.h"
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>

enum { EPOLL, POLL, FUTEX, NANOSLEEP, RECV, SIGTIMEDWAIT, SEMTIMEDOP, READ, SELECT, KINDS };
static const char *const kinds[KINDS] = {"epoll_wait", "poll", "futex",        "nanosleep", "recv",
                                         "sigtimedwait", "semtimedop", "read", "select"};

enum { WAIT_PRIVATE = 128 }; // FUTEX_WAIT | FUTEX_PRIVATE_FLAG: not every libc has the kernel's headers
enum { OWN = 50 * KINDS }; // so many sleepers have files of their own; the others wait for these
enum { TIMEOUT_MS = 150, FOREVER_MS = 3600000 };

static int timed;
static uint64_t interrupted[KINDS], early, late, rounds;

struct sleeper {
	int kind, epoll, pair[2], notify, sem;
};

// sleep_once makes the thread's call once: 0 when it ended as it should.
FRAME int sleep_once(struct sleeper *s) {
	long ms = timed ? TIMEOUT_MS : FOREVER_MS;
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	struct epoll_event ev;
	struct sembuf down = {0, -1, 0};
	sigset_t set;
	char buf[4096];
	uint32_t word = 0;
	switch (s->kind) {
	case EPOLL: return epoll_wait(s->epoll, &ev, 1, (int)ms);
	case POLL: return poll(&(struct pollfd){s->pair[0], POLLIN, 0}, 1, (int)ms);
	case FUTEX: return (int)syscall(SYS_futex, &word, WAIT_PRIVATE, 0, &t, NULL, 0);
	case NANOSLEEP: return nanosleep(&t, NULL);
	case RECV: return (int)recv(s->pair[0], buf, sizeof buf, 0);
	case SIGTIMEDWAIT:
		sigemptyset(&set);
		sigaddset(&set, SIGUSR2);
		return sigtimedwait(&set, NULL, &t);
	case SEMTIMEDOP: return semtimedop(s->sem, &down, 1, &t);
	case READ: return (int)read(s->notify, buf, sizeof buf); // no timeout: as long as the program
	default: return select(0, NULL, NULL, NULL, &tv);
	}
}

static void *sleeper(void *arg) {
	struct sleeper *s = (struct sleeper *)arg;
	for (;;) {
		uint64_t begin = prog_now();
		int bad = sleep_once(s);
		if (bad < 0 && errno == EINTR) {
			__atomic_add_fetch(&interrupted[s->kind], 1, __ATOMIC_RELAXED);
			continue;
		}
		uint64_t ms = (prog_now() - begin) / 1000000;
		if (ms + 5 < TIMEOUT_MS)
			__atomic_add_fetch(&early, 1, __ATOMIC_RELAXED);
		if (ms > TIMEOUT_MS + 1000)
			__atomic_add_fetch(&late, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *runner(void *arg) {
	(void)arg;
	for (;;)
		prog_spin(prog_now() + 1000000000u);
	return NULL;
}

static void start(void *(*f)(void *), void *arg, const char *what, int number) {
	pthread_t thread;
	pthread_attr_t attr;
	char name[32];
	snprintf(name, sizeof name, "%.10s-%d", what, number);
	name[15] = 0;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 128 << 10);
	if (pthread_create(&thread, &attr, f, arg))
		die("pthread_create");
	pthread_setname_np(thread, name);
}

int main(int argc, char **argv) {
	uint64_t sleepers = KINDS, running = 0, seconds = 1;
	int wait_go = 0;
	static const struct option longs[] = {{"sleepers", 1, 0, 'n'}, {"running", 1, 0, 'm'}, {"seconds", 1, 0, 's'},
	                                      {"timed", 0, 0, 't'},    {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (c) {
		case 'n': sleepers = prog_number(optarg); break;
		case 'm': running = prog_number(optarg); break;
		case 's': seconds = prog_number(optarg); break;
		case 't': timed = 1; break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	if (optind != argc || sleepers > 20000 || running > 1000)
		return 2;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	// One semaphore for all, gone with its last user, or with the program.
	int sem = semget(IPC_PRIVATE, 1, 0600);
	if (sem < 0)
		die("semget");
	struct sleeper *all = (struct sleeper *)calloc(sleepers + 1, sizeof *all);
	for (uint64_t k = 0; k < sleepers; k++) {
		struct sleeper *s = &all[k];
		if (k >= OWN) { // a user has 128 inotify instances, and few descriptors
			*s = all[k % OWN];
			start(sleeper, s, kinds[s->kind], (int)k);
			continue;
		}
		s->kind = (int)(k % KINDS);
		s->sem = sem;
		if (s->kind == EPOLL && (s->epoll = epoll_create1(0)) < 0)
			die("epoll_create1");
		if ((s->kind == POLL || s->kind == RECV) && socketpair(AF_UNIX, SOCK_DGRAM, 0, s->pair))
			die("socketpair");
		if (s->kind == READ && (s->notify = inotify_init1(0)) < 0)
			die("inotify_init1");
		struct timeval tv = {0, TIMEOUT_MS * 1000};
		if (s->kind == RECV && timed && setsockopt(s->pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv))
			die("SO_RCVTIMEO");
		start(sleeper, s, kinds[s->kind], (int)k);
	}
	prog_ready(wait_go);
	for (uint64_t k = 0; k < running; k++)
		start(runner, NULL, "runner", (int)k);
	uint64_t end = prog_now() + seconds * 1000000000u, now;
	while ((now = prog_now()) < end) {
		struct timespec t = {(time_t)((end - now) / 1000000000u), (long)((end - now) % 1000000000u)};
		nanosleep(&t, NULL);
	}
	printf("{\"interrupted\":{");
	for (int k = 0; k < KINDS; k++)
		printf("%s\"%s\":%" PRIu64, k ? "," : "", kinds[k], __atomic_load_n(&interrupted[k], __ATOMIC_RELAXED));
	printf("},\"early\":%" PRIu64 ",\"late\":%" PRIu64 ",\"rounds\":%" PRIu64 "}\n", __atomic_load_n(&early, __ATOMIC_RELAXED),
	       __atomic_load_n(&late, __ATOMIC_RELAXED), __atomic_load_n(&rounds, __ATOMIC_RELAXED));
	fflush(stdout);
	semctl(sem, 0, IPC_RMID);
	_exit(0);
}
