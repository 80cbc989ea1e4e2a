// One lock, a thread that holds it and threads that wait for it. Usage:
// pthread KIND [WAITERS] [PATH]; KIND is one of the names in main, PATH the
// file for flock, fcntl and ofd.
// Prints {"kind":…,"lock":"0x…","mutex":"0x…","holder":TID,"waiters":[TID,…]}
// (holder 0: the kind has none; mutex 0x0: none is involved) once the holder
// holds it and the waiters are about to wait. Then it waits for a line on
// standard input, releases it, and prints {"waits":[{"tid":…,"begin":…,"end":…},…]}
// with the times (CLOCK_MONOTONIC, ns) around each waiter's call.
#include "prog.h"
#include <fcntl.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <semaphore.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MAX_WAITERS = 64 };

static struct shared {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	pthread_rwlock_t rwlock;
	pthread_barrier_t barrier;
	sem_t sem;
	pthread_once_t once;
	sem_t go, held; // how the main thread and the holder talk
	int tid;
} own, *s = &own;

static const char *kind, *path;
static int waiters = 1;
static struct waiter {
	int tid;
	uint64_t begin, end;
	pthread_t thread;
} w[MAX_WAITERS];
static pthread_t holder;
static int *arena;

static int is(const char *k) { return strcmp(kind, k) == 0; }

static void check(int err, const char *what) {
	if (err) {
		errno = err;
		die(what);
	}
}

static void down(sem_t *sem) {
	while (sem_wait(sem))
		if (errno != EINTR)
			die("sem_wait");
}

static void file_lock(int type, int wait) {
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		die(path);
	struct flock f = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = 10, .l_len = 20};
	int err;
	do {
		if (is("flock"))
			err = flock(fd, LOCK_EX);
#ifdef F_OFD_SETLKW
		else if (is("ofd"))
			err = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &f);
#endif
		else
			err = fcntl(fd, wait ? F_SETLKW : F_SETLK, &f);
	} while (err && errno == EINTR);
	if (err)
		die("lock a file");
}

static void once_body(void) {
	sem_post(&s->held);
	down(&s->go);
}

// The holder takes the lock, reports it, and releases it on request.
FRAME void hold(void) {
	if (is("arena"))
		while (!__sync_bool_compare_and_swap(arena, 0, 2))
			;
	__atomic_store_n(&s->tid, prog_tid(), __ATOMIC_RELEASE);
	if (is("rwlock-write"))
		check(pthread_rwlock_wrlock(&s->rwlock), "wrlock");
	else if (is("rwlock-read"))
		check(pthread_rwlock_rdlock(&s->rwlock), "rdlock");
	else if (is("once"))
		check(pthread_once(&s->once, once_body), "once");
	else if (is("stdio"))
		flockfile(stderr);
	else if (is("flock") || is("fcntl") || is("ofd"))
		file_lock(F_WRLCK, 0);
	else if (!is("arena"))
		check(pthread_mutex_lock(&s->mutex), "lock");
	if (!is("once")) {
		sem_post(&s->held);
		down(&s->go);
	}
	if (is("rwlock-write") || is("rwlock-read"))
		pthread_rwlock_unlock(&s->rwlock);
	else if (is("stdio"))
		funlockfile(stderr);
	else if (is("arena")) {
		__sync_lock_release(arena);
		syscall(SYS_futex, arena, 1 | 128, INT_MAX, NULL, NULL, 0); // FUTEX_WAKE_PRIVATE
	} else if (!is("once"))
		pthread_mutex_unlock(&s->mutex);
}

static void *holder_main(void *arg) {
	hold();
	return arg;
}

// A thread that is joined: it is the holder.
static void *joined_main(void *arg) {
	s->tid = prog_tid();
	sem_post(&s->held);
	down(&s->go);
	return arg;
}

static int later(struct timespec *t) {
	clock_gettime(CLOCK_REALTIME, t);
	t->tv_sec += 3600;
	return 0;
}

FRAME void wait_for_it(int i) {
	struct timespec t;
	if (is("rwlock-write")) {
		check(i % 2 ? pthread_rwlock_wrlock(&s->rwlock) : pthread_rwlock_rdlock(&s->rwlock), "rwlock");
		pthread_rwlock_unlock(&s->rwlock);
	} else if (is("rwlock-read")) {
		check(pthread_rwlock_wrlock(&s->rwlock), "wrlock");
		pthread_rwlock_unlock(&s->rwlock);
	} else if (is("cond") || is("cond-timed")) {
		pthread_mutex_lock(&s->mutex);
		while (!s->tid)
			if (is("cond"))
				pthread_cond_wait(&s->cond, &s->mutex);
			else if (later(&t) == 0)
				pthread_cond_timedwait(&s->cond, &s->mutex, &t);
		pthread_mutex_unlock(&s->mutex);
	} else if (is("sem")) {
		down(&s->sem);
	} else if (is("barrier")) {
		pthread_barrier_wait(&s->barrier);
	} else if (is("once")) {
		pthread_once(&s->once, once_body);
	} else if (is("join")) {
		check(pthread_join(holder, NULL), "join");
	} else if (is("stdio")) {
		fprintf(stderr, "x");
	} else if (is("arena")) {
		// Threads cannot be made while it is locked: they come before the holder.
		while (!__atomic_load_n(&s->tid, __ATOMIC_ACQUIRE))
			sched_yield();
		void *p = malloc(100000);
		__asm__ volatile("" : "+r"(p)); // or the compiler leaves both out
		free(p);
	} else if (is("flock") || is("fcntl") || is("ofd")) {
		file_lock(F_WRLCK, 1);
	} else if (is("timed")) {
		later(&t);
		check(pthread_mutex_timedlock(&s->mutex, &t), "timedlock");
		pthread_mutex_unlock(&s->mutex);
	} else {
		check(pthread_mutex_lock(&s->mutex), "lock");
		pthread_mutex_unlock(&s->mutex);
	}
}

static void *waiter_main(void *arg) {
	struct waiter *me = (struct waiter *)arg;
	me->begin = prog_now();
	__atomic_store_n(&me->tid, prog_tid(), __ATOMIC_RELEASE);
	wait_for_it((int)(me - w));
	me->end = prog_now();
	return NULL;
}

int main(int argc, char **argv) {
	if (argc < 2 || argc > 4)
		return 2;
	kind = argv[1];
	if (argc > 2)
		waiters = (int)prog_number(argv[2]);
	if (argc > 3)
		path = argv[3];
	if (waiters < 1 || waiters > MAX_WAITERS)
		return 2;
	prog_ready(0);
	int pshared = strncmp(kind, "shared-", 7) == 0;
	int other = pshared || is("flock") || is("fcntl") || is("ofd"); // the holder is another process
	if (other) {
		s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (s == MAP_FAILED)
			die("mmap");
	}
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	if (strstr(kind, "recursive"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	if (strstr(kind, "errorcheck"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
	if (strstr(kind, "robust"))
		pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	if (strstr(kind, "pi"))
		check(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT), "PTHREAD_PRIO_INHERIT");
	if (pshared)
		pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	check(pthread_mutex_init(&s->mutex, &a), "pthread_mutex_init");
	pthread_cond_init(&s->cond, NULL);
	pthread_rwlock_init(&s->rwlock, NULL);
	pthread_barrier_init(&s->barrier, NULL, (unsigned)waiters + 1);
	sem_init(&s->sem, 0, 0);
	sem_init(&s->go, other, 0);
	sem_init(&s->held, other, 0);
	void *lock = &s->mutex, *mutex = NULL;
	int keeps = 1; // there is a holder
#ifdef __GLIBC__
	if (is("arena")) {
		// A chunk in the unsorted bin points at it: 96 bytes into the arena
		// (since 2.27), whose first word is the lock.
		mallopt(M_ARENA_MAX, 1);
		void *big = malloc(5000), *guard = malloc(5000);
		uintptr_t at = (uintptr_t)big;
		__asm__ volatile("" : "+r"(at), "+r"(guard)); // or the compiler leaves both out
		free(big);
		__asm__ volatile("" : "+r"(at) : : "memory");
		arena = (int *)(*(uintptr_t *)at - 96);
		lock = arena;
		free(guard);
	}
#endif
	if (is("cond") || is("cond-timed"))
		lock = &s->cond, mutex = &s->mutex, keeps = 0;
	else if (is("sem"))
		lock = &s->sem, keeps = 0;
	else if (is("barrier"))
		lock = &s->barrier, keeps = 0;
	else if (is("once"))
		lock = &s->once;
	else if (strncmp(kind, "rwlock", 6) == 0)
		lock = &s->rwlock;
	else if (is("stdio") || path)
		lock = NULL;
	pid_t child = 0;
	if (keeps && !is("arena")) {
		if (other) {
			fflush(stdout);
			child = fork();
			if (child < 0)
				die("fork");
			if (child == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				hold();
				_exit(0);
			}
		} else if (is("join")) {
			check(pthread_create(&holder, NULL, joined_main, NULL), "pthread_create");
			lock = (void *)holder;
		} else
			check(pthread_create(&holder, NULL, holder_main, NULL), "pthread_create");
		down(&s->held);
	}
	for (int i = 0; i < waiters; i++)
		check(pthread_create(&w[i].thread, NULL, waiter_main, &w[i]), "pthread_create");
	for (int i = 0; i < waiters; i++)
		while (!__atomic_load_n(&w[i].tid, __ATOMIC_ACQUIRE))
			sched_yield();
	if (is("arena")) {
		check(pthread_create(&holder, NULL, holder_main, NULL), "pthread_create");
		down(&s->held);
	}
	char line[4096]; // not by stdio's own allocation: the arena may be locked
	int n = snprintf(line, sizeof line, "{\"kind\":\"%s\",\"lock\":\"0x%" PRIxPTR "\",\"mutex\":\"0x%" PRIxPTR "\",\"holder\":%d,\"waiters\":[",
	                 kind, (uintptr_t)lock, (uintptr_t)mutex, s->tid);
	for (int i = 0; i < waiters; i++)
		n += snprintf(line + n, sizeof line - (size_t)n, "%s%d", i ? "," : "", w[i].tid);
	n += snprintf(line + n, sizeof line - (size_t)n, "]}\n");
	if (write(1, line, (size_t)n) != n)
		die("write");
	prog_await();
	if (keeps)
		sem_post(&s->go);
	else if (is("sem"))
		for (int i = 0; i < waiters; i++)
			sem_post(&s->sem);
	else if (is("barrier"))
		pthread_barrier_wait(&s->barrier);
	else {
		pthread_mutex_lock(&s->mutex);
		s->tid = 1;
		pthread_cond_broadcast(&s->cond);
		pthread_mutex_unlock(&s->mutex);
	}
	for (int i = 0; i < waiters; i++)
		check(pthread_join(w[i].thread, NULL), "join");
	if (child)
		waitpid(child, NULL, 0);
	printf("{\"waits\":[");
	for (int i = 0; i < waiters; i++)
		printf("%s{\"tid\":%d,\"begin\":%" PRIu64 ",\"end\":%" PRIu64 "}", i ? "," : "", w[i].tid, w[i].begin, w[i].end);
	printf("]}\n");
	return 0;
}
