// Threads in calls whose arguments point at memory that is unmapped later: a
// futex, a path, a list of descriptors and a timeout. Usage: gone FIFO. Prints
// {"threads":[{"name":…,"tid":…},…]} once the memory is unmapped. It ends when its
// standard input closes.
#include "prog.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { N = 4 };

static struct task {
	const char *name;
	char *page;
	int tid;
} tasks[N] = {{"futex", NULL, 0}, {"open", NULL, 0}, {"poll", NULL, 0}, {"sleep", NULL, 0}};

static void *task_main(void *arg) {
	struct task *t = (struct task *)arg;
	void *p = t->page;
	__atomic_store_n(&t->tid, prog_tid(), __ATOMIC_RELEASE);
	if (!strcmp(t->name, "futex"))
		syscall(SYS_futex, p, 128, 0, NULL, NULL, 0); // FUTEX_WAIT_PRIVATE
	else if (!strcmp(t->name, "open"))
		syscall(SYS_openat, AT_FDCWD, p, O_RDONLY, 0);
	else if (!strcmp(t->name, "poll"))
		syscall(SYS_ppoll, p, 1, NULL, NULL, 0);
	else
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, p, NULL);
	pause();
	return NULL;
}

// asleep reports whether a thread sleeps.
static int asleep(int tid) {
	char path[64], b[512];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, b, sizeof b - 1);
	close(fd);
	if (n <= 0)
		return 0;
	b[n] = 0;
	char *end = strrchr(b, ')');
	return end && end[2] == 'S';
}

int main(int argc, char **argv) {
	if (argc != 2 || strlen(argv[1]) > 4000)
		return 2;
	long page = sysconf(_SC_PAGESIZE);
	prog_ready(0);
	for (int i = 0; i < N; i++) {
		struct task *t = &tasks[i];
		t->page = (char *)mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (t->page == MAP_FAILED)
			die("mmap");
		if (!strcmp(t->name, "open"))
			strcpy(t->page, argv[1]);
		else if (!strcmp(t->name, "poll"))
			*(struct pollfd *)(void *)t->page = (struct pollfd){0, 0, 0};
		else if (!strcmp(t->name, "sleep"))
			*(struct timespec *)(void *)t->page = (struct timespec){3600, 0};
	}
	for (int i = 0; i < N; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, task_main, &tasks[i]))
			die("pthread_create");
	}
	for (int i = 0; i < N; i++) {
		int tid;
		while (!(tid = __atomic_load_n(&tasks[i].tid, __ATOMIC_ACQUIRE)))
			sched_yield();
		// What it sleeps in once it has said who it is is its call.
		for (int often = 0; often < 5;) {
			often = asleep(tid) ? often + 1 : 0;
			usleep(1000);
		}
		munmap(tasks[i].page, (size_t)page);
	}
	printf("{\"threads\":[");
	for (int i = 0; i < N; i++)
		printf("%s{\"name\":\"%s\",\"tid\":%d}", i ? "," : "", tasks[i].name, tasks[i].tid);
	printf("]}\n");
	fflush(stdout);
	prog_await();
	_exit(0);
}
