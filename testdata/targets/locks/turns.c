// Threads that take turns with one lock of any kind, and log when. Usage:
// turns KIND THREADS SECONDS MICROSECONDS [FILE]; a lock is held for about so
// many microseconds at a time. KIND is one of the names below; "shared-"
// before a mutex has another process take turns too. FILE is for flock, fcntl
// and ofd, where other processes take turns, and the log has PIDs for holders.
// The output is that of turns.h.
#include "turns.h"
#include <fcntl.h>
#include <semaphore.h>
#include <sys/file.h>
#include <sys/wait.h>

enum { MAX_ONCE = 4096 };

static struct locks {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	pthread_rwlock_t rwlock;
	pthread_barrier_t barrier;
	sem_t sem;
	pthread_once_t once[MAX_ONCE];
	int tokens;
	uint64_t last; // the barrier's round after which all stop
} own, *s = &own;

static const char *kind, *path;
static int workers; // of all processes
static uint64_t hold_us;
static FILE *stream;

static int is(const char *k) { return strcmp(kind, k) == 0; }
static int of_file(void) { return is("flock") || is("fcntl") || is("ofd"); }

static void check(int err, const char *what) {
	if (err) {
		errno = err;
		die(what);
	}
}

static void in_an_hour(struct timespec *t) {
	clock_gettime(CLOCK_REALTIME, t);
	t->tv_sec += 3600;
}

static void file_lock(int fd, int type) {
	struct flock f = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = 10, .l_len = 20};
	int err;
	do {
		if (is("flock"))
			err = flock(fd, type == F_UNLCK ? LOCK_UN : LOCK_EX);
#ifdef F_OFD_SETLKW
		else if (is("ofd"))
			err = fcntl(fd, F_OFD_SETLKW, &f);
#endif
		else
			err = fcntl(fd, F_SETLKW, &f);
	} while (err && errno == EINTR);
	if (err)
		die("lock a file");
}

FRAME void acquire(int i, int fd) {
	struct timespec t;
	if (of_file())
		file_lock(fd, F_WRLCK);
	else if (is("stdio"))
		flockfile(stream);
	else if (is("rwlock-mixed") && i % 2)
		check(pthread_rwlock_rdlock(&s->rwlock), "rdlock");
	else if (is("rwlock") || is("rwlock-mixed"))
		check(pthread_rwlock_wrlock(&s->rwlock), "wrlock");
	else if (is("timed")) {
		in_an_hour(&t);
		check(pthread_mutex_timedlock(&s->mutex, &t), "timedlock");
	} else
		check(pthread_mutex_lock(&s->mutex), "lock");
}

static void release(int fd) {
	if (of_file())
		file_lock(fd, F_UNLCK);
	else if (is("stdio"))
		funlockfile(stream);
	else if (is("rwlock") || is("rwlock-mixed"))
		pthread_rwlock_unlock(&s->rwlock);
	else
		pthread_mutex_unlock(&s->mutex);
}

static const void *lock_address(void) {
	if (of_file())
		return NULL;
#ifdef __GLIBC__
	if (is("stdio"))
		return stream->_lock;
#endif
	if (strncmp(kind, "cond", 4) == 0)
		return &s->cond;
	if (strncmp(kind, "rwlock", 6) == 0)
		return &s->rwlock;
	if (is("sem"))
		return &s->sem;
	if (is("barrier"))
		return &s->barrier;
	if (is("join") || is("once"))
		return NULL; // another one each time
	return &s->mutex;
}

// One holds, the others wait.
static void exclusive(int i, int tid, unsigned *seed) {
	int fd = -1;
	if (of_file() && (fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0)
		die(path);
	while (turns_on()) {
		uint64_t wanted = prog_now();
		acquire(i, fd);
		uint64_t got = prog_now();
		turns_work(seed, hold_us);
		uint64_t left = prog_now();
		release(fd);
		turns_waited(tid, lock_address(), wanted, got);
		int reads = is("rwlock-mixed") && i % 2;
		turns_held(of_file() ? (int)getpid() : reads ? 0 : tid, lock_address(), got, left);
		turns_sleep(1 + (uint64_t)rand_r(seed) % hold_us);
	}
}

// The first thread gives, the others take.
static void conditional(int i, int tid, unsigned *seed) {
	if (i == 0) {
		while (turns_on()) {
			turns_work(seed, hold_us);
			pthread_mutex_lock(&s->mutex);
			s->tokens = workers - 1;
			pthread_cond_broadcast(&s->cond);
			pthread_mutex_unlock(&s->mutex);
		}
		pthread_mutex_lock(&s->mutex);
		s->tokens = INT32_MAX / 2; // for whoever still waits
		pthread_cond_broadcast(&s->cond);
		pthread_mutex_unlock(&s->mutex);
		return;
	}
	while (turns_on()) {
		struct timespec t;
		in_an_hour(&t);
		pthread_mutex_lock(&s->mutex);
		while (s->tokens == 0) {
			uint64_t wanted = prog_now();
			if (is("cond"))
				pthread_cond_wait(&s->cond, &s->mutex);
			else
				pthread_cond_timedwait(&s->cond, &s->mutex, &t);
			turns_waited(tid, &s->cond, wanted, prog_now());
		}
		s->tokens--;
		pthread_mutex_unlock(&s->mutex);
	}
}

static void semaphore(int i, int tid, unsigned *seed) {
	if (i == 0) {
		while (turns_on()) {
			turns_work(seed, hold_us);
			for (int k = 1; k < workers; k++)
				sem_post(&s->sem);
		}
		for (int k = 1; k < workers; k++)
			sem_post(&s->sem);
		return;
	}
	while (turns_on()) {
		uint64_t wanted = prog_now();
		while (sem_wait(&s->sem))
			;
		turns_waited(tid, &s->sem, wanted, prog_now());
	}
}

static void barrier(int i, int tid, unsigned *seed) {
	for (uint64_t round = 1;; round++) {
		turns_sleep(1 + (uint64_t)rand_r(seed) % (2 * hold_us));
		if (i == 0 && !turns_on())
			__atomic_store_n(&s->last, round, __ATOMIC_RELEASE);
		uint64_t wanted = prog_now();
		pthread_barrier_wait(&s->barrier);
		turns_waited(tid, &s->barrier, wanted, prog_now());
		uint64_t last = __atomic_load_n(&s->last, __ATOMIC_ACQUIRE);
		if (last && round >= last)
			return;
	}
}

struct joined {
	unsigned seed;
	int tid;
	uint64_t from;
};

static void *joined_main(void *arg) {
	struct joined *j = (struct joined *)arg;
	j->from = prog_now();
	__atomic_store_n(&j->tid, prog_tid(), __ATOMIC_RELEASE);
	turns_work(&j->seed, hold_us);
	return NULL;
}

static void joiner(int tid, unsigned *seed) {
	while (turns_on()) {
		struct joined j = {(unsigned)rand_r(seed), 0, 0};
		pthread_t t;
		check(pthread_create(&t, NULL, joined_main, &j), "pthread_create");
		while (!__atomic_load_n(&j.tid, __ATOMIC_ACQUIRE))
			sched_yield();
		uint64_t wanted = prog_now();
		check(pthread_join(t, NULL), "pthread_join");
		uint64_t got = prog_now();
		turns_waited(tid, (void *)t, wanted, got);
		turns_held(j.tid, (void *)t, j.from, got);
	}
}

static __thread int ran; // this thread ran the initialisation
static __thread unsigned once_seed;

static void once_body(void) {
	ran = 1;
	turns_work(&once_seed, hold_us);
}

static void once(int i, int tid, unsigned *seed) {
	once_seed = (unsigned)rand_r(seed);
	for (uint64_t round = 1; round < MAX_ONCE; round++) {
		if (i == 0 && (!turns_on() || round == MAX_ONCE - 1))
			__atomic_store_n(&s->last, round, __ATOMIC_RELEASE);
		pthread_barrier_wait(&s->barrier);
		ran = 0;
		uint64_t wanted = prog_now();
		pthread_once(&s->once[round], once_body);
		if (!ran)
			turns_waited(tid, &s->once[round], wanted, prog_now());
		uint64_t last = __atomic_load_n(&s->last, __ATOMIC_ACQUIRE);
		if (last && round >= last)
			return;
	}
}

static void work(int i) {
	unsigned seed = (unsigned)i + 1;
	int tid = turns_enter(i);
	if (strncmp(kind, "cond", 4) == 0)
		conditional(i, tid, &seed);
	else if (is("sem"))
		semaphore(i, tid, &seed);
	else if (is("barrier"))
		barrier(i, tid, &seed);
	else if (is("join"))
		joiner(tid, &seed);
	else if (is("once"))
		once(i, tid, &seed);
	else
		exclusive(i, tid, &seed);
}

static void *worker_main(void *arg) {
	work((int)(intptr_t)arg);
	return NULL;
}

int main(int argc, char **argv) {
	if (argc < 5 || argc > 6)
		return 2;
	kind = argv[1];
	int threads = (int)prog_number(argv[2]);
	uint64_t seconds = prog_number(argv[3]);
	hold_us = prog_number(argv[4]);
	if (argc > 5)
		path = argv[5];
	int shared = strncmp(kind, "shared-", 7) == 0, processes = 0;
	if (shared || is("flock") || is("ofd"))
		processes = 1;
	if (is("fcntl"))
		processes = 2;
	workers = threads + processes;
	if (threads < 1 || workers > TURNS_THREADS || hold_us == 0 || (of_file() && !path))
		return 2;
	prog_ready(0);
	turns_init();
	if (processes) {
		s = (struct locks *)mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (s == MAP_FAILED)
			die("mmap");
	}
	stream = fopen("/dev/null", "w");
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	if (strstr(kind, "recursive"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	if (strstr(kind, "errorcheck"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
	if (strstr(kind, "adaptive"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
	if (strstr(kind, "robust"))
		pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	if (strstr(kind, "pi"))
		check(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT), "PTHREAD_PRIO_INHERIT");
	if (shared)
		pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	check(pthread_mutex_init(&s->mutex, &a), "pthread_mutex_init");
	pthread_cond_init(&s->cond, NULL);
	pthread_rwlock_init(&s->rwlock, NULL);
	pthread_barrier_init(&s->barrier, NULL, (unsigned)workers);
	sem_init(&s->sem, 0, 0);
	pid_t children[2];
	for (int i = 0; i < processes; i++) {
		children[i] = fork();
		if (children[i] < 0)
			die("fork");
		if (children[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			work(threads + i);
			_exit(0);
		}
	}
	pthread_t t[TURNS_THREADS];
	for (int i = 0; i < threads; i++)
		check(pthread_create(&t[i], NULL, worker_main, (void *)(intptr_t)i), "pthread_create");
	turns_start(lock_address(), workers, threads, seconds);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < processes; i++)
		waitpid(children[i], NULL, 0);
	turns_report();
	return 0;
}
