/*
 * files: operations on files, with the program's own account of them.
 *
 *   files SCENARIO PATH N SIZE
 *
 * prints "ready PID" and waits for a line of input, runs the scenario, prints
 * "truth OPERATIONS LONGEST NEAREST FARTHEST OTHER BUSY" (ns: the longest call; the least and
 * the most time between the ends of two calls in turn, or with again from the first close to
 * the last; the longest open or close; with starved the longest call without its wait for a
 * CPU), then "done", and waits for the end of its input.
 *
 *   read     main opens PATH, reads N times SIZE bytes, closes it
 *   starved  as read, at the lowest priority on a CPU that four other processes keep busy, until
 *            a read took 100 ms
 *   reopen   main does that N times with one read each
 *   again:US main does that, closing US microseconds after the close before
 *   thread   as read, on another thread
 *   share    main opens PATH, three threads each read N times, main closes it
 *   write    main writes N times SIZE bytes
 *   sync     main writes SIZE bytes and calls fdatasync, N times
 *   osync    main writes N times SIZE bytes to PATH, opened with O_DSYNC
 *   connect  N connections to a TCP server of its own, with a byte each, made in connecting
 *   rights   N messages with a descriptor of PATH, every other with two, received in receiving;
 *            they stay open
 *   leak     N sockets that stay open, opened in leaking
 *   leaks    N descriptors of each kind that stay open, opened in a function of its own: leaking_file …;
 *            prints "lacks" with those that this kernel or user does not have
 *   replaced main writes SIZE bytes to PATH.1, PATH.2 and PATH.3, whose descriptors end by dup2 and close_range, and to PATH.4
 *            over the copy of another one; then to rel in the folder of PATH and in /tmp, after chdir and fchdir, N times all
 *   unseen   N pairs of descriptors that stay open: of an ioctl, and the last of a message with three; and one that
 *            io_uring closes
 *   keeps    the same as leaks; at each further line of input it opens as many, and closes these
 *   stat, open, close, unlink, rename, readdir
 *            main makes this call on PATH, or for readdir on its folder, once in calling
 *   flock:US, ofd:US
 *            main waits US microseconds for a lock of PATH that another thread has, with flock or fcntl
 *   loop-X   such a call on a thread that waits in epoll_wait
 *   loop     a thread that waits in epoll_wait between N reads of SIZE bytes
 *   mixed    calls of all sorts, some of which fail
 *   cold     main reads the first SIZE bytes of N pages of PATH, which are not in the page cache
 *   mapped   main touches N such pages of a map of PATH in touching, every fifth by a write to a pipe;
 *            OPERATIONS are the pages that mincore says are not in the cache, for cold those of them for
 *            which the thread slept
 *   uring    main reads SIZE bytes of PATH N times through io_uring, and calls fsync after every fifth;
 *            then once more as a registered file, and once from a bad descriptor. PATH was opened before.
 *            Then PATH.0 three times and PATH.1 four times; io_uring opens and closes them, as one descriptor
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static const char *path;
static long count, size;
static uint64_t longest, last, nearest, farthest, other, busiest;
static long operations;
static char buf[1 << 20];

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static void check(long result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
}

static void account(uint64_t from)
{
	uint64_t end = now(), took = end - from, since = end - last;
	if (took > longest)
		longest = took;
	if (last && (!nearest || since < nearest))
		nearest = since;
	if (last && since > farthest)
		farthest = since;
	last = end;
	operations++;
}

static void aside(uint64_t from)
{
	uint64_t took = now() - from;
	if (took > other)
		other = took;
}

NOINLINE int opening(int flags)
{
	uint64_t from = now();
	int fd = open(path, flags, 0600);
	check(fd, path);
	aside(from);
	return fd;
}

static void closing(int fd)
{
	uint64_t from = now();
	check(close(fd), "close");
	aside(from);
}

NOINLINE void reading(int fd, long n)
{
	for (long i = 0; i < n; i++) {
		uint64_t from = now();
		check(pread(fd, buf, size, 0), "pread");
		account(from);
	}
}

static void again(uint64_t pause)
{
	uint64_t first = 0, at = 0;
	for (long i = 0; i < count; i++) {
		int fd = opening(O_RDONLY);
		reading(fd, 1);
		while (at && now() < at + pause)
			;
		check(close(fd), "close");
		at = now();
		if (!first)
			first = at;
	}
	nearest = farthest = at - first;
}

NOINLINE void leaking(void)
{
	for (long i = 0; i < count; i++)
		check(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
}

static void *reader(void *arg)
{
	(void)arg;
	int fd = opening(O_RDONLY);
	reading(fd, count);
	closing(fd);
	return NULL;
}

/* How long this thread has waited for a CPU, in ns: the second number of schedstat. */
static int schedstat = -1;

static uint64_t queued(void)
{
	char line[100] = "";
	check(pread(schedstat, line, sizeof line - 1, 0), "schedstat");
	return strtoull(strchr(line, ' '), NULL, 10);
}

static void starve(void)
{
	cpu_set_t one;
	int cpu = sched_getcpu();
	CPU_ZERO(&one);
	CPU_SET(cpu < 0 ? 0 : cpu, &one);
	check(sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
	for (int i = 0; i < 4; i++) {
		pid_t parent = getpid(), child = fork();
		check(child, "fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (getppid() == parent)
				;
			_exit(0);
		}
	}
	struct sched_param none = { 0 };
	check(sched_setscheduler(0, SCHED_IDLE, &none), "sched_setscheduler");
	schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
	check(schedstat, "schedstat");
}

static void starved(void)
{
	int fd = opening(O_RDONLY);
	for (long i = 0; i < count && longest < 100000000; i++) {
		uint64_t waited = queued(), from = now();
		check(pread(fd, buf, size, 0), "pread");
		uint64_t took = now() - from;
		account(from);
		waited = queued() - waited;
		took -= waited < took ? waited : took;
		if (took > busiest)
			busiest = took;
	}
	closing(fd);
}

NOINLINE void connecting(const struct sockaddr_in *to)
{
	for (long i = 0; i < count; i++) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		check(s, "socket");
		check(connect(s, (const struct sockaddr *)to, sizeof *to), "connect");
		check(write(s, "x", 1), "write");
		check(close(s), "close");
	}
}

static void *serving(void *arg)
{
	for (long i = 0; i < count; i++) {
		int s = accept((int)(intptr_t)arg, NULL, NULL);
		check(s, "accept");
		check(read(s, buf, 1), "read");
		check(close(s), "close");
	}
	return NULL;
}

static void connections(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof at;
	pthread_t t;
	int l = socket(AF_INET, SOCK_STREAM, 0);
	check(bind(l, (struct sockaddr *)&at, n), "bind");
	check(listen(l, 100), "listen");
	check(getsockname(l, (struct sockaddr *)&at, &n), "getsockname");
	pthread_create(&t, NULL, serving, (void *)(intptr_t)l);
	connecting(&at);
	pthread_join(t, NULL);
	check(close(l), "close");
	operations = ntohs(at.sin_port);
}

static int received[3];

static void message(int s, int receive, int fds)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} control = { { 0 } };
	struct iovec v = { buf, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	if (receive) {
		check(recvmsg(s, &m, 0), "recvmsg");
		memcpy(received, CMSG_DATA(&control.head), fds * sizeof(int));
		operations += (m.msg_controllen >= sizeof control.head) * fds;
		return;
	}
	m.msg_controllen = CMSG_SPACE(fds * sizeof(int));
	control.head.cmsg_level = SOL_SOCKET, control.head.cmsg_type = SCM_RIGHTS, control.head.cmsg_len = CMSG_LEN(fds * sizeof(int));
	for (int i = 0; i < fds; i++)
		((int *)CMSG_DATA(&control.head))[i] = opening(O_RDONLY);
	check(sendmsg(s, &m, 0), "sendmsg");
	for (int i = 0; i < fds; i++)
		check(close(((int *)CMSG_DATA(&control.head))[i]), "close");
}

NOINLINE void receiving(int s, int fds)
{
	message(s, 1, fds);
	__asm__ volatile("");
}

static void rights(void)
{
	int s[2];
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, s), "socketpair");
	for (long i = 0; i < count; i++) {
		message(s[0], 0, 1 + i % 2);
		receiving(s[1], 1 + i % 2);
	}
}

static int listening = -1, highest = 2000, own_pidfd = -1;
static char queue_name[100];

#define LEAKING(what, call)                 \
	NOINLINE void leaking_##what(void)      \
	{                                       \
		check(call, #what);                 \
		__asm__ volatile("");               \
	}
LEAKING(file, open(path, O_RDONLY))
LEAKING(folder, open("/", O_RDONLY | O_DIRECTORY))
LEAKING(stream, socket(AF_UNIX, SOCK_STREAM, 0))
LEAKING(eventfd, eventfd(0, 0))
LEAKING(epoll, epoll_create1(0))
LEAKING(memfd, memfd_create("x", 0))
LEAKING(timer, timerfd_create(CLOCK_MONOTONIC, 0))
LEAKING(inotify, inotify_init1(0))
LEAKING(dup, dup(0))
LEAKING(dup3, dup3(0, highest++, O_CLOEXEC))
LEAKING(fcntl, fcntl(0, F_DUPFD_CLOEXEC, 10))
LEAKING(signal, signalfd(-1, &(sigset_t){ 0 }, 0))
LEAKING(pidfd, syscall(SYS_pidfd_open, getpid(), 0))
LEAKING(userfault, syscall(SYS_userfaultfd, 1)) /* UFFD_USER_MODE_ONLY */
LEAKING(fanotify, syscall(SYS_fanotify_init, 0x200, 0)) /* FAN_REPORT_FID */
LEAKING(perf, syscall(SYS_perf_event_open, &(struct perf_event_attr){ .type = PERF_TYPE_SOFTWARE, .size = sizeof(struct perf_event_attr), .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1 }, 0, -1, -1, 0))
LEAKING(accept, accept4(listening, NULL, NULL, SOCK_CLOEXEC))

/* Those that a kernel or a user may not have. */
static char lacks[1000];

static void may_lack(long result, const char *what)
{
	if (result < 0 && errno != ENOSYS && errno != EPERM && errno != EACCES && errno != EOPNOTSUPP && errno != EINVAL)
		check(result, what);
	if (result < 0 && !strstr(lacks, what)) {
		strcat(lacks, " leaking_");
		strcat(lacks, what);
	}
}

#define MAY_LEAK(what, call)                \
	NOINLINE void leaking_##what(void)      \
	{                                       \
		may_lack(call, #what);              \
		__asm__ volatile("");               \
	}
static struct {
	struct file_handle head;
	char room[MAX_HANDLE_SZ];
} handle;
static struct io_uring_params uring_params;
static union bpf_attr array_map = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1 };
static struct { uint64_t access; } all_files = { 1 };
LEAKING(openat2, syscall(SYS_openat2, AT_FDCWD, path, &(struct open_how){ .flags = O_RDONLY }, sizeof(struct open_how)))
LEAKING(epoll1, epoll_create(1))
LEAKING(accept0, accept(listening, NULL, NULL))
#ifdef SYS_inotify_init
LEAKING(inotify0, syscall(SYS_inotify_init))
LEAKING(eventfd0, syscall(SYS_eventfd, 0))
LEAKING(signal0, syscall(SYS_signalfd, -1, &(sigset_t){ 0 }, 8))
#endif
MAY_LEAK(uring, syscall(SYS_io_uring_setup, 2, (memset(&uring_params, 0, sizeof uring_params), &uring_params)))
MAY_LEAK(secret, syscall(SYS_memfd_secret, 0))
MAY_LEAK(taken, syscall(SYS_pidfd_getfd, own_pidfd, 0, 0))
MAY_LEAK(handle, open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY))
MAY_LEAK(bpf, syscall(SYS_bpf, BPF_MAP_CREATE, &array_map, sizeof array_map))
MAY_LEAK(fsopen, syscall(SYS_fsopen, "tmpfs", 0))
MAY_LEAK(tree, syscall(SYS_open_tree, AT_FDCWD, "/", 0))
MAY_LEAK(landlock, syscall(SYS_landlock_create_ruleset, &all_files, sizeof all_files, 0))
MAY_LEAK(queue, syscall(SYS_mq_open, queue_name, O_RDWR | O_CREAT, 0600, (long[8]){ 0, 1, 8 })) /* a small one */

NOINLINE void leaking_child(void)
{
	int fd = -1;
	long pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &fd, NULL, NULL);
	if (!pid)
		_exit(0);
	check(pid, "clone");
	check(fd, "pidfd of clone");
	check(waitpid(pid, NULL, 0), "waitpid");
}

/* These make no descriptor, and change none. */
static void not_making(void)
{
	int fd = eventfd(0, 0), s = signalfd(-1, &(sigset_t){ 0 }, 0);
	check(signalfd(s, &(sigset_t){ 0 }, 0) == s ? 0 : -1, "signalfd");
	may_lack(syscall(SYS_landlock_create_ruleset, NULL, 0, 1), "landlock");
	check(fcntl(fd, F_GETFL), "fcntl");
	check(close(fd), "close");
	check(close(s), "close");
}

NOINLINE void leaking_pipe(void)
{
	int p[2];
	check(pipe(p), "pipe");
	__asm__ volatile("");
}

NOINLINE void leaking_pair(void)
{
	int p[2];
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, p), "socketpair");
	__asm__ volatile("");
}

static void leaks(void)
{
	int s[2], client;
	struct sockaddr_un at = { .sun_family = AF_UNIX }; /* an address that the kernel chooses */
	socklen_t n = sizeof at;
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, s), "socketpair");
	check(listening = socket(AF_UNIX, SOCK_STREAM, 0), "socket");
	check(bind(listening, (struct sockaddr *)&at, sizeof at.sun_family), "bind");
	check(listen(listening, 1), "listen");
	check(getsockname(listening, (struct sockaddr *)&at, &n), "getsockname");
	struct rlimit most;
	int mount;
	check(getrlimit(RLIMIT_NOFILE, &most), "getrlimit");
	most.rlim_cur = most.rlim_max;
	check(setrlimit(RLIMIT_NOFILE, &most), "setrlimit");
	check(own_pidfd = syscall(SYS_pidfd_open, getpid(), 0), "pidfd_open");
	handle.head.handle_bytes = MAX_HANDLE_SZ;
	may_lack(name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0), "handle");
	snprintf(queue_name, sizeof queue_name, "sliver-test-%d", getpid());
	for (long i = 0; i < count; i++) {
		not_making();
		leaking_openat2();
		leaking_epoll1();
#ifdef SYS_inotify_init
		leaking_inotify0();
		leaking_eventfd0();
		leaking_signal0();
#endif
		leaking_uring();
		leaking_secret();
		leaking_taken();
		leaking_handle();
		leaking_bpf();
		leaking_fsopen();
		leaking_tree();
		leaking_landlock();
		leaking_queue();
		leaking_child();
		leaking_file();
		leaking_folder();
		leaking_stream();
		leaking_eventfd();
		leaking_epoll();
		leaking_memfd();
		leaking_timer();
		leaking_inotify();
		leaking_dup();
		leaking_dup3();
		leaking_fcntl();
		leaking_signal();
		leaking_pidfd();
		leaking_userfault();
		leaking_fanotify();
		leaking_perf();
		check(client = socket(AF_UNIX, SOCK_STREAM, 0), "socket");
		check(connect(client, (struct sockaddr *)&at, n), "connect");
		leaking_accept();
		check(close(client), "close");
		check(client = socket(AF_UNIX, SOCK_STREAM, 0), "socket");
		check(connect(client, (struct sockaddr *)&at, n), "connect");
		leaking_accept0();
		check(close(client), "close");
		leaking_pipe();
		leaking_pair();
		message(s[0], 0, 1);
		receiving(s[1], 1);
	}
	check(close(s[0]), "close");
	check(close(s[1]), "close");
	check(close(listening), "close");
	check(close(own_pidfd), "close");
	syscall(SYS_mq_unlink, queue_name);
	printf("lacks%s\n", lacks);
}

static void keeps(void)
{
	static int lines;
	static char kept[4096]; /* by descriptor */
	leaks();
	for (int fd = 0; fd < (int)sizeof kept; fd++) {
		int open = fcntl(fd, F_GETFD) >= 0;
		if (!lines)
			kept[fd] = open;
		else if (open && !kept[fd])
			check(close(fd), "close");
	}
	lines = 1;
}

static void *sharer(void *arg)
{
	for (long i = 0; i < count; i++)
		check(pread((int)(intptr_t)arg, buf, size, 0), "pread");
	return NULL;
}

/* The time at which a call began, for the thread that has the lock. */
static uint64_t locking;
static const char *lock_kind;

static int lock(int fd, int type)
{
	if (*lock_kind == 'f')
		return flock(fd, type);
	struct flock l = { .l_type = type == LOCK_UN ? F_UNLCK : F_WRLCK };
	return fcntl(fd, F_OFD_SETLKW, &l);
}

static void *holder(void *arg)
{
	int fd = opening(O_RDWR);
	check(lock(fd, LOCK_EX), lock_kind);
	sem_post(arg);
	uint64_t from, pause = strtoull(strchr(lock_kind, ':') + 1, NULL, 10) * 1000;
	while (!(from = __atomic_load_n(&locking, __ATOMIC_ACQUIRE)) || now() < from + pause)
		;
	check(lock(fd, LOCK_UN), lock_kind);
	check(close(fd), "close");
	return NULL;
}

/* calling makes one call, and returns 0 if there is none of this name. */
NOINLINE int calling(const char *what)
{
	static char other[4096], folder[4096];
	struct stat st;
	DIR *dir = NULL;
	int fd = -1;
	pthread_t t;
	snprintf(other, sizeof other, "%s.new", path);
	snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
	if (!strncmp(what, "flock:", 6) || !strncmp(what, "ofd:", 4)) {
		sem_t ready;
		sem_init(&ready, 0, 0);
		lock_kind = what, locking = 0;
		pthread_create(&t, NULL, holder, &ready);
		sem_wait(&ready);
		fd = opening(O_RDWR);
		uint64_t from = now();
		__atomic_store_n(&locking, from, __ATOMIC_RELEASE);
		check(lock(fd, LOCK_EX), what);
		account(from);
		check(close(fd), "close");
		pthread_join(t, NULL);
		return 1;
	}
	if (!strcmp(what, "readdir"))
		dir = opendir(folder);
	if (!strcmp(what, "close"))
		fd = opening(O_RDONLY);
	uint64_t from = now();
	if (!strcmp(what, "stat"))
		check(stat(path, &st), what);
	else if (!strcmp(what, "open"))
		check(fd = open(path, O_RDONLY), what);
	else if (!strcmp(what, "close"))
		check(close(fd), what);
	else if (!strcmp(what, "unlink"))
		check(unlink(path), what);
	else if (!strcmp(what, "rename"))
		check(rename(path, other), what);
	else if (!strcmp(what, "readdir"))
		check(readdir(dir) ? 0 : -1, what);
	else
		return 0;
	account(from);
	if (dir)
		closedir(dir);
	return 1;
}

static void *looping(void *arg)
{
	int ep = epoll_create1(0), ev = eventfd(1, 0);
	struct epoll_event e = { .events = EPOLLIN }, got;
	check(epoll_ctl(ep, EPOLL_CTL_ADD, ev, &e), "epoll_ctl");
	for (int i = 0; i < 50; i++)
		check(epoll_wait(ep, &got, 1, -1), "epoll_wait");
	if (!arg)
		reader(NULL);
	else if (!calling(arg))
		exit(2);
	return NULL;
}

static void on_thread(void *(*f)(void *), int n, void *arg)
{
	pthread_t t[8];
	for (int i = 0; i < n; i++)
		pthread_create(&t[i], NULL, f, arg);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static void mixed(void)
{
	int pair[2];
	for (long i = 0; i < count; i++) {
		int fd = opening(O_RDWR | O_CREAT);
		check(write(fd, buf, size), "write");
		check(pwrite(fd, buf, size, 10), "pwrite");
		check(lseek(fd, 0, SEEK_SET), "lseek");
		check(read(fd, buf, 100), "read");
		struct iovec v[2] = { { buf, 10 }, { buf + 10, 20 } };
		check(readv(fd, v, 2), "readv");
		check(fsync(fd), "fsync");
		int two = dup(fd);
		check(two, "dup");
		check(close(two), "close");
		check(close(fd), "close");
		if (read(-1, buf, 1) >= 0 || errno != EBADF)
			exit(2);
		if (open("/nonexistent/file", O_RDONLY) >= 0)
			exit(2);
		if (close(99999) >= 0)
			exit(2);
		check(pipe(pair), "pipe");
		check(write(pair[1], "x", 1), "write");
		check(read(pair[0], buf, 1), "read");
		check(close(pair[0]), "close");
		check(close(pair[1]), "close");
	}
}

enum { PAGE = 4096 };

NOINLINE void touching(const char *page)
{
	(void)*(const volatile char *)page;
	__asm__ volatile("");
}

/* How often the thread has given its CPU away to wait. */
static long slept(void)
{
	struct rusage u;
	check(getrusage(RUSAGE_THREAD, &u), "getrusage");
	return u.ru_nvcsw;
}

/* Every third page, backwards, so that no read is ahead of the next one. */
static void evicted(int mapped)
{
	int fd = opening(O_RDONLY), p[2];
	off_t len = lseek(fd, 0, SEEK_END);
	long step = 3 * PAGE;
	check(len < count * step ? -1 : 0, "size of the file");
	check(pipe(p), "pipe");
	check(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) ? -1 : 0, "fadvise");
	check(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) ? -1 : 0, "fadvise");
	char *m = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	check(m == MAP_FAILED ? -1 : 0, "mmap");
	check(madvise(m, len, MADV_RANDOM), "madvise");
	for (long i = count - 1; i >= 0; i--) {
		unsigned char in;
		check(mincore(m + i * step, 1, &in), "mincore");
		if (!mapped) {
			long before = slept();
			check(pread(fd, buf, size, i * step), "pread");
			in |= slept() == before;
		} else if (i % 5 == 0) {
			check(write(p[1], m + i * step, 1), "write");
			check(read(p[0], buf, 1), "read");
		} else {
			touching(m + i * step);
		}
		operations += !(in & 1);
	}
	check(munmap(m, len), "munmap");
	check(close(fd), "close");
	check(close(p[0]), "close");
	check(close(p[1]), "close");
}

struct ring {
	int fd;
	unsigned *sq_tail, *sq_mask, *array, *cq_head, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	char name[4096]; // to open
};

static int numbered(int n);

static int submit(struct ring *r, int op, int fd, int flags)
{
	unsigned tail = *r->sq_tail, at = tail & *r->sq_mask;
	struct io_uring_sqe *s = &r->sqes[at];
	memset(s, 0, sizeof *s);
	s->opcode = op, s->fd = fd, s->flags = flags;
	if (op == IORING_OP_READ)
		s->addr = (uint64_t)(uintptr_t)buf, s->len = size;
	if (op == IORING_OP_OPENAT)
		s->addr = (uint64_t)(uintptr_t)r->name, s->open_flags = O_RDONLY;
	r->array[at] = at;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	check(syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), "io_uring_enter");
	unsigned head = *r->cq_head;
	int result = r->cqes[head & *r->cq_mask].res;
	__atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
	return result;
}

static void start(struct ring *r)
{
	struct io_uring_params p = { 0 };
	check(r->fd = syscall(SYS_io_uring_setup, 8, &p), "io_uring_setup");
	char *m = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned) + p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
	check(m == MAP_FAILED || !(p.features & IORING_FEAT_SINGLE_MMAP) ? -1 : 0, "mmap");
	r->sqes = mmap(NULL, p.sq_entries * sizeof *r->sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
	check(r->sqes == MAP_FAILED ? -1 : 0, "mmap");
	r->sq_tail = (unsigned *)(m + p.sq_off.tail), r->sq_mask = (unsigned *)(m + p.sq_off.ring_mask), r->array = (unsigned *)(m + p.sq_off.array);
	r->cq_head = (unsigned *)(m + p.cq_off.head), r->cq_mask = (unsigned *)(m + p.cq_off.ring_mask);
	r->cqes = (struct io_uring_cqe *)(m + p.cq_off.cqes);
}

static void uring(int fd)
{
	struct ring r;
	start(&r);
	for (long i = 0; i < count; i++) {
		check(submit(&r, IORING_OP_READ, fd, 0) == size ? 0 : -1, "read");
		operations++;
		if (i % 5 == 4)
			check(submit(&r, IORING_OP_FSYNC, fd, 0), "fsync");
	}
	check(syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_FILES, &fd, 1), "io_uring_register");
	check(submit(&r, IORING_OP_READ, 0, IOSQE_FIXED_FILE) == size ? 0 : -1, "read");
	if (submit(&r, IORING_OP_READ, 999, 0) != -EBADF)
		exit(2);
	for (int n = 0; n < 2; n++) {
		check(write(fd = numbered(n), buf, size) == size ? 0 : -1, "write");
		check(close(fd), "close");
	}
	for (int n = 0; n < 2; n++) {
		snprintf(r.name, sizeof r.name, "%s.%d", path, n);
		check(fd = submit(&r, IORING_OP_OPENAT, AT_FDCWD, 0), "openat");
		for (int i = 0; i < 3 + n; i++)
			check(submit(&r, IORING_OP_READ, fd, 0) == size ? 0 : -1, "read");
		check(submit(&r, IORING_OP_CLOSE, fd, 0), "close");
	}
	check(close(r.fd), "close");
}

static int numbered(int n)
{
	char name[4096];
	int fd;
	snprintf(name, sizeof name, "%s.%d", path, n);
	check(fd = open(name, O_RDWR | O_CREAT, 0600), name);
	return fd;
}

static void writing(int fd)
{
	check(write(fd, buf, size) == size ? 0 : -1, "write");
	operations++;
}

static void replaced(void)
{
	static char folder[4096];
	snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
	for (long i = 0; i < count; i++) {
		int one = numbered(1), four = numbered(4), top, away, rel;
		writing(one);
		check(dup2(four, one), "dup2");
		writing(one); /* to PATH.4 */
		check(close(one), "close");
		check(close(four), "close");
		for (int n = 2; n <= 3; n++) {
			int fd = numbered(n);
			writing(fd);
			check(syscall(SYS_close_range, fd, fd, 0), "close_range");
		}
		check(away = open("/tmp", O_RDONLY | O_DIRECTORY), "/tmp");
		check(chdir(folder), folder);
		check(rel = open("rel", O_RDWR | O_CREAT, 0600), "rel");
		writing(rel);
		check(close(rel), "close");
		check(fchdir(away), "fchdir");
		char name[100];
		snprintf(name, sizeof name, "sliver-rel-%d", getpid());
		check(rel = open(name, O_RDWR | O_CREAT, 0600), name);
		writing(rel);
		check(close(rel), "close");
		check(unlink(name), name);
		check(top = open("/", O_RDONLY | O_DIRECTORY), "/");
		check(fchdir(top), "fchdir");
		check(close(top), "close");
		check(close(away), "close");
	}
}

static void unseen(void)
{
	static struct ring r;
	static int master = -1, s[2];
	if (master < 0) {
		check(master = open("/dev/ptmx", O_RDWR | O_NOCTTY), "/dev/ptmx");
		check(unlockpt(master), "unlockpt");
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, s), "socketpair");
		start(&r);
	}
	for (long i = 0; i < count; i++) {
		check(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY), "TIOCGPTPEER");
		message(s[0], 0, 3);
		receiving(s[1], 3);
		check(close(received[0]), "close");
		check(close(received[1]), "close");
		check(submit(&r, IORING_OP_CLOSE, opening(O_RDONLY), 0), "close");
		check(close(dup(0)), "close"); /* has the same number */
	}
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "files SCENARIO PATH N SIZE\n");
		return 2;
	}
	const char *s = argv[1];
	path = argv[2], count = atol(argv[3]), size = atol(argv[4]);
	if (size > (long)sizeof buf)
		return 2;
	char line[64];
	int fd, early = strcmp(s, "uring") ? -1 : opening(O_RDWR);
	if (!strcmp(s, "starved"))
		starve();
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		longest = last = nearest = farthest = other = busiest = 0, operations = 0;
		if (!strcmp(s, "read")) {
			reader(NULL);
		} else if (!strcmp(s, "starved")) {
			starved();
		} else if (!strcmp(s, "reopen")) {
			for (long i = 0; i < count; i++) {
				fd = opening(O_RDONLY);
				reading(fd, 1);
				close(fd);
			}
		} else if (!strncmp(s, "again:", 6)) {
			again(strtoull(s + 6, NULL, 10) * 1000);
		} else if (!strcmp(s, "thread")) {
			on_thread(reader, 1, NULL);
		} else if (!strcmp(s, "share")) {
			fd = opening(O_RDONLY);
			on_thread(sharer, 3, (void *)(intptr_t)fd);
			close(fd);
		} else if (!strcmp(s, "write") || !strcmp(s, "sync") || !strcmp(s, "osync")) {
			fd = opening(O_WRONLY | O_CREAT | (*s == 'o' ? O_DSYNC : 0));
			for (long i = 0; i < count; i++) {
				check(write(fd, buf, size), "write");
				if (!strcmp(s, "sync"))
					check(fdatasync(fd), "fdatasync");
			}
			close(fd);
		} else if (!strcmp(s, "connect")) {
			connections();
		} else if (!strcmp(s, "rights")) {
			rights();
		} else if (!strcmp(s, "leak")) {
			leaking();
		} else if (!strcmp(s, "leaks")) {
			leaks();
		} else if (!strcmp(s, "replaced")) {
			replaced();
		} else if (!strcmp(s, "unseen")) {
			unseen();
		} else if (!strcmp(s, "keeps")) {
			keeps();
		} else if (!strcmp(s, "loop")) {
			on_thread(looping, 1, NULL);
		} else if (!strncmp(s, "loop-", 5)) {
			on_thread(looping, 1, (void *)(s + 5));
		} else if (!strcmp(s, "cold") || !strcmp(s, "mapped")) {
			evicted(!strcmp(s, "mapped"));
		} else if (!strcmp(s, "uring")) {
			uring(early);
		} else if (!strcmp(s, "mixed")) {
			mixed();
		} else if (!calling(s)) {
			return 2;
		}
		printf("truth %ld %llu %llu %llu %llu %llu\ndone\n", operations, (unsigned long long)longest, (unsigned long long)nearest,
			(unsigned long long)farthest, (unsigned long long)other, (unsigned long long)busiest);
		fflush(stdout);
	}
	return 0;
}
