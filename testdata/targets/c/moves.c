/*
 * moves: calls that move bytes between descriptors, or have several messages.
 *
 *   moves FOLDER N SIZE
 *
 * makes FOLDER/file, then N times each call with SIZE bytes, and some that fail. It prints
 * "truth NAME READS BYTES WRITES BYTES" for each file of FOLDER, with what its calls moved.
 * With N negative it prints "ready PID" and waits for a line of input, moves SIZE bytes
 * from FOLDER/file -N times by sendfile to a socket whose peer reads every 20 ms, and
 * prints "done".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SENT, SPLICED, COPIED, IN, FILES, MESSAGES = 5 };
static const char *names[FILES] = { "sent", "spliced", "copied", "file" };
static int files[FILES];
static long sums[FILES][4]; /* reads, bytes, writes, bytes */
static char buf[1 << 16];
static long size;

static long check(long result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

static void fails(long result, const char *what)
{
	if (result >= 0) {
		fprintf(stderr, "%s did not fail\n", what);
		exit(1);
	}
}

static void wrote(int file, long n) { sums[file][2]++, sums[file][3] += n; }
static void was_read(int file, long n) { sums[file][0]++, sums[file][1] += n; }

static void messages(int out, int in)
{
	struct mmsghdr m[MESSAGES] = { 0 };
	struct iovec v[MESSAGES];
	for (int i = 0; i < MESSAGES; i++) {
		v[i].iov_base = buf, v[i].iov_len = 100 + i;
		m[i].msg_hdr.msg_iov = &v[i], m[i].msg_hdr.msg_iovlen = 1;
	}
	if (check(sendmmsg(out, m, MESSAGES, 0), "sendmmsg") != MESSAGES)
		exit(2);
	for (int i = 0; i < MESSAGES; i++)
		v[i].iov_len = 500, m[i].msg_len = 0;
	if (check(recvmmsg(in, m, MESSAGES, 0, NULL), "recvmmsg") != MESSAGES || m[4].msg_len != 104)
		exit(2);
	fails(sendmmsg(-1, m, MESSAGES, 0), "sendmmsg");
	fails(recvmmsg(in, m, MESSAGES, MSG_DONTWAIT, NULL), "recvmmsg");
}

static void *later(void *arg)
{
	struct timespec pause = { 0, 20000000 };
	int s = (int)(intptr_t)arg;
	long n;
	do {
		nanosleep(&pause, NULL);
		n = check(read(s, buf, sizeof buf), "read");
	} while (n);
	return NULL;
}

static int opening(const char *folder, int file, int flags)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", folder, names[file]);
	return check(open(path, flags, 0600), path);
}

__attribute__((noinline)) static void slowly(const char *folder, long n)
{
	char line[64];
	int s[2], room = 1;
	pthread_t t;
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		exit(2);
	int in = opening(folder, IN, O_RDONLY);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, s), "socketpair");
	check(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), "setsockopt");
	pthread_create(&t, NULL, later, (void *)(intptr_t)s[1]);
	for (long i = 0; i < n; i++) {
		off_t at = 0;
		for (long left = size; left;)
			left -= check(sendfile(s[0], in, &at, left), "sendfile");
	}
	check(close(s[0]), "close");
	pthread_join(t, NULL);
	check(close(in), "close");
	printf("done\n");
	fflush(stdout);
	(void)!fgets(line, sizeof line, stdin);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *folder = argv[1];
	long n = atol(argv[2]);
	size = atol(argv[3]);
	if (size > (long)sizeof buf)
		return 2;
	if (n < 0) {
		slowly(folder, -n);
		return 0;
	}
	int p[2], q[2], s[2];
	for (int i = 0; i < FILES; i++)
		files[i] = opening(folder, i, O_RDWR | O_CREAT);
	check(pipe(p), "pipe");
	check(pipe(q), "pipe");
	check(socketpair(AF_UNIX, SOCK_DGRAM, 0, s), "socketpair");
	wrote(IN, check(write(files[IN], buf, size), "write"));
	for (long i = 0; i < n; i++) {
		off_t at = 0;
		long moved = check(sendfile(files[SENT], files[IN], &at, sizeof buf * 2), "sendfile");
		was_read(IN, moved), wrote(SENT, moved);

		loff_t from = 10, to = 0;
		moved = check(splice(files[IN], &from, p[1], NULL, size - 10, 0), "splice");
		was_read(IN, moved);
		if (check(tee(p[0], q[1], moved, 0), "tee") != moved)
			exit(2);
		wrote(SPLICED, check(splice(p[0], NULL, files[SPLICED], &to, moved, 0), "splice"));
		wrote(SPLICED, check(splice(q[0], NULL, files[SPLICED], &to, moved, 0), "splice"));

		struct iovec v = { buf, 1000 };
		check(vmsplice(p[1], &v, 1, 0) - 1000, "vmsplice");
		check(vmsplice(p[0], &v, 1, 0) - 1000, "vmsplice");

		from = 20, to = 0;
		moved = check(copy_file_range(files[IN], &from, files[COPIED], &to, 1L << 60, 0), "copy_file_range");
		was_read(IN, moved), wrote(COPIED, moved);
		messages(s[0], s[1]);

		fails(sendfile(files[SENT], -1, NULL, 1), "sendfile");
		fails(splice(files[IN], NULL, files[SENT], NULL, 1, 0), "splice");
		fails(tee(files[IN], q[1], 1, 0), "tee");
		fails(copy_file_range(files[IN], NULL, p[1], NULL, 1, 0), "copy_file_range");
		struct iovec w[2] = { { buf, 10 }, { buf + 10, 20 } };
		wrote(SENT, check(pwritev2(files[SENT], w, 2, 0, 0), "pwritev2"));
		was_read(SENT, check(preadv2(files[SENT], w, 2, 0, 0), "preadv2"));
	}
	for (int i = 0; i < FILES; i++) {
		check(close(files[i]), "close");
		printf("truth %s %ld %ld %ld %ld\n", names[i], sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
	}
	return 0;
}
