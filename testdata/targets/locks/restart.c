// One thread in each of the calls that the kernel goes on with as restart_syscall when they
// were cut short. Prints {"threads":[{"name":…,"tid":…},…]}: name is the call's, with what
// it is used for behind a colon. It ends when its standard input does.
#include "prog.h"
#include <semaphore.h>
#include <sys/mman.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

enum { POLLED = 137 }; // as a number, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG

static const char *const names[] = {"futex:semaphore", "futex:shared", "futex:mutex", "clock_nanosleep", "nanosleep", "poll:one", "poll:none", "poll:many"};
enum { N = sizeof names / sizeof *names };
static int tids[N];
static sem_t sem, *shared;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int fds[2];

static void *run(void *arg) {
	long i = (long)arg;
	struct timespec hour = {3600, 0}, until;
	struct pollfd p[POLLED];
	__atomic_store_n(&tids[i], (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 3600;
	for (int j = 0; j < POLLED; j++)
		p[j] = (struct pollfd){fds[0], POLLIN, 0};
	switch (i) {
	case 0: sem_timedwait(&sem, &until); break;
	case 1: sem_timedwait(shared, &until); break;
	case 2: pthread_mutex_timedlock(&mutex, &until); break;
	case 3: clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, NULL); break;
#ifdef SYS_nanosleep
	case 4: syscall(SYS_nanosleep, &hour, NULL); break;
#endif
	case 5: poll(p, 1, 3600000); break;
	case 6: poll(NULL, 0, 3600000); break;
	case 7: poll(p, POLLED, 3600000); break;
	}
	die("a wait that has no end");
	return NULL;
}

int main(void) {
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || sem_init(&sem, 0, 0) || sem_init(shared, 1, 0) || pipe(fds))
		die("setup");
	pthread_mutex_lock(&mutex);
	for (long i = 0; i < N; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, run, (void *)i))
			die("pthread_create");
		while (!__atomic_load_n(&tids[i], __ATOMIC_ACQUIRE))
			sched_yield();
	}
	printf("{\"threads\":[");
	for (int i = 0; i < N; i++)
		printf("%s{\"name\":\"%s\",\"tid\":%d}", i ? "," : "", names[i], tids[i]);
	printf("]}\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
