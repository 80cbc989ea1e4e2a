// Two processes, each of which holds one of two mutexes in shared memory and
// waits for the other one: a deadlock across processes. Prints
// {"threads":[PID,PID],"locks":["0x…","0x…"]}; process i holds locks[i]. It ends
// when its standard input closes.
#include "prog.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { N = 2 };

static struct shared {
	pthread_mutex_t mutex[N];
	pthread_barrier_t all_hold;
} *s;

FRAME void want(int i) {
	pthread_mutex_lock(&s->mutex[i]);
	abort(); // no process releases its lock
}

FRAME void hold(int i) {
	pthread_mutex_lock(&s->mutex[i]);
	pthread_barrier_wait(&s->all_hold);
	want((i + 1) % N);
}

int main(void) {
	s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		die("mmap");
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK); // all libcs keep an owner then
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	for (int i = 0; i < N; i++)
		pthread_mutex_init(&s->mutex[i], &a);
	pthread_barrierattr_t b;
	pthread_barrierattr_init(&b);
	pthread_barrierattr_setpshared(&b, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&s->all_hold, &b, N + 1);
	pid_t children[N];
	for (int i = 0; i < N; i++) {
		children[i] = fork();
		if (children[i] < 0)
			die("fork");
		if (children[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			prog_ready(0);
			hold(i);
		}
	}
	pthread_barrier_wait(&s->all_hold);
	printf("{\"threads\":[%d,%d],\"locks\":[\"%p\",\"%p\"]}\n", children[0], children[1], (void *)&s->mutex[0], (void *)&s->mutex[1]);
	fflush(stdout);
	prog_await();
	for (int i = 0; i < N; i++)
		kill(children[i], SIGKILL);
	_exit(0);
}
