/*
 * stuck: threads that cannot be stopped, beside others that spin.
 *
 *   stuck [DIR]
 *
 * Prints "vfork TID", "spin TID" and "spin TID". The first is in vfork, asleep
 * uninterruptibly, until a line of input; then it prints "back TID", and at the
 * end of input the program ends. With DIR it is "fuse TID", which opens a file
 * there, in a file system (FUSE, mounted for this program alone) that does not
 * answer until then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ends[2];
static volatile pid_t tids[3];

static void *in_vfork(void *p)
{
	char c;
	(void)p;
	tids[0] = (pid_t)syscall(SYS_gettid);
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* too late if the program was killed before */
		close(ends[1]);                   /* then, it reads an end of file */
		while (read(ends[0], &c, 1) < 0)
			;
		_exit(0);
	}
	printf("back %d\n", tids[0]);
	fflush(stdout);
	for (volatile long x = 0;; x++)
		;
	return 0;
}

static const char *dir;

/* serve answers a mount's requests, but answers requests for a file only after a
 * byte from the pipe. */
static void serve(int fuse)
{
	static char in[1 << 17];
	char c;
	ssize_t n;
	while ((n = read(fuse, in, sizeof in)) > 0 || errno == EINTR || errno == ENOENT) {
		struct fuse_in_header *h = (struct fuse_in_header *)in;
		struct {
			struct fuse_out_header h;
			struct fuse_init_out init;
		} out = {.h = {.len = sizeof out.h, .unique = h->unique}};
		if (n <= 0 || h->opcode == FUSE_INTERRUPT || h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET)
			continue;
		if (h->opcode == FUSE_INIT) {
			out.h.len = sizeof out;
			out.init.major = FUSE_KERNEL_VERSION;
			out.init.minor = FUSE_KERNEL_MINOR_VERSION;
			out.init.max_write = 4096;
		} else if (h->opcode == FUSE_LOOKUP) {
			while (read(ends[0], &c, 1) < 0)
				;
			out.h.error = -ENOENT;
		} else
			out.h.error = -ENOSYS;
		if (write(fuse, &out, out.h.len) < 0)
			perror("fuse");
	}
}

static void *in_fuse(void *p)
{
	char name[4096];
	(void)p;
	snprintf(name, sizeof name, "%s/file", dir);
	tids[0] = (pid_t)syscall(SYS_gettid);
	if (open(name, O_RDONLY) >= 0 || errno != ENOENT)
		perror(name);
	printf("back %d\n", tids[0]);
	fflush(stdout);
	for (volatile long x = 0;; x++)
		;
	return 0;
}

/* mounted starts a process that serves dir. */
static int mounted(void)
{
	char options[100];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (fuse < 0 || unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) ||
	    mount("stuck", dir, "fuse", MS_NOSUID | MS_NODEV, options)) {
		perror("mount");
		return 0;
	}
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fuse);
		_exit(0);
	}
	return 1;
}

static void *spin(void *p)
{
	tids[1 + (long)p] = (pid_t)syscall(SYS_gettid);
	for (volatile long x = 0;; x++)
		;
	return 0;
}

int main(int argc, char **argv)
{
	char line[8];
	pthread_t t;
	dir = argc > 1 ? argv[1] : 0;
	if (pipe(ends) || (dir && !mounted()))
		return 3;
	if (pthread_create(&t, 0, dir ? in_fuse : in_vfork, 0) || pthread_create(&t, 0, spin, (void *)0) ||
	    pthread_create(&t, 0, spin, (void *)1))
		return 3;
	for (int i = 0; i < 3; i++) {
		while (!tids[i])
			usleep(100);
		printf("%s %d\n", i ? "spin" : dir ? "fuse" : "vfork", tids[i]);
	}
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin) || write(ends[1], "x", 1) != 1)
		return 0;
	while (fgets(line, sizeof line, stdin))
		;
	return 0;
}
