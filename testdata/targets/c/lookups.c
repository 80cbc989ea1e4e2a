/*
 * lookups: questions to a name server, with the program's own account of them.
 *
 *   lookups SCENARIO NAME [ADDRESS]
 *
 * prints "ready PID" and waits for a line of input, runs the scenario in asking, prints
 * "truth LONGEST" (ns from a question to its answer), then "done", and waits for the end
 * of its input. The name server is at port 53 of ADDRESS.
 *
 *   libc      getaddrinfo, whose server is that of /etc/resolv.conf
 *   sendto    an unconnected socket, as musl has it; poll, then recvfrom
 *   sendmsg   the same with sendmsg and recvmsg
 *   write     a connected socket, write and read
 *   writev    the same with writev and readv
 *   batch     two questions with sendmmsg, answers with recvfrom
 *   batches   two unconnected questions with sendmmsg, answers with recvmmsg
 *   kept      three questions one after the other on one socket that stays open
 *   tcp       a connection; the answer's length is read first
 *   fast      a TCP connection that sendmsg opens (MSG_FASTOPEN)
 *   mute      a question whose answer is not read
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static const char *name;
static struct sockaddr_in server = { .sin_family = AF_INET };
static uint64_t longest, asked;
static unsigned char in[2][512];

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

static size_t question(unsigned char *b, int id)
{
	const unsigned char head[] = { 0x5a, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0 };
	size_t n = sizeof head;
	memcpy(b, head, n);
	for (const char *s = name; *s;) {
		size_t l = strcspn(s, ".");
		b[n++] = l;
		memcpy(b + n, s, l);
		n += l;
		s += l + (s[l] == '.');
	}
	memcpy(b + n, "\0\0\1\0\1", 5);
	return n + 5;
}

static void answered(void)
{
	uint64_t took = now() - asked;
	if (took > longest)
		longest = took;
}

static void await(int s)
{
	struct pollfd p = { s, POLLIN, 0 };
	check(poll(&p, 1, 60000) == 1 ? 0 : -1, "poll");
}

NOINLINE int asking(const char *how)
{
	static unsigned char q[2][512], length[2];
	int stream = !strcmp(how, "tcp") || !strcmp(how, "fast"), unconnected = !strncmp(how, "send", 4) || !strcmp(how, "batches") || !strcmp(how, "fast");
	size_t n = question(q[0], 1), more = question(q[1], 2);
	int s = socket(AF_INET, stream ? SOCK_STREAM : SOCK_DGRAM, 0);
	check(s, "socket");
	if (!unconnected)
		check(connect(s, (struct sockaddr *)&server, sizeof server), "connect");
	struct iovec v[2] = { { q[0], n }, { q[1], more } }, r[2] = { { in[0], sizeof in[0] }, { in[1], sizeof in[1] } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 1 };
	if (unconnected)
		m.msg_name = &server, m.msg_namelen = sizeof server;
	asked = now();
	if (!strcmp(how, "sendto")) {
		check(sendto(s, q[0], n, 0, (struct sockaddr *)&server, sizeof server), how);
		await(s);
		check(recvfrom(s, in[0], sizeof in[0], 0, NULL, NULL), "recvfrom");
	} else if (!strcmp(how, "sendmsg")) {
		check(sendmsg(s, &m, 0), how);
		await(s);
		struct msghdr a = { .msg_iov = r, .msg_iovlen = 1 };
		check(recvmsg(s, &a, 0), "recvmsg");
	} else if (!strcmp(how, "write") || !strcmp(how, "mute")) {
		check(write(s, q[0], n), how);
		await(s);
		if (*how == 'w')
			check(read(s, in[0], sizeof in[0]), "read");
	} else if (!strcmp(how, "writev")) {
		check(writev(s, v, 1), how);
		check(readv(s, r, 2), "readv");
	} else if (!strncmp(how, "batch", 5)) {
		struct mmsghdr mm[2] = { { m, 0 }, { m, 0 } };
		mm[1].msg_hdr.msg_iov = v + 1;
		check(sendmmsg(s, mm, 2, 0) == 2 ? 0 : -1, how);
		if (how[5]) {
			struct mmsghdr rr[2] = { { { .msg_iov = r, .msg_iovlen = 1 }, 0 }, { { .msg_iov = r + 1, .msg_iovlen = 1 }, 0 } };
			check(recvmmsg(s, rr, 2, MSG_WAITALL, NULL) == 2 ? 0 : -1, "recvmmsg");
		} else {
			check(recvfrom(s, in[0], sizeof in[0], 0, NULL, NULL), "recvfrom");
			check(recvfrom(s, in[0], sizeof in[0], 0, NULL, NULL), "recvfrom");
		}
	} else if (!strcmp(how, "kept")) {
		for (int i = 0; i < 3; i++) {
			n = question(q[0], 10 + i);
			asked = now();
			check(send(s, q[0], n, 0), how);
			check(recv(s, in[0], sizeof in[0], 0), "recv");
			answered();
		}
		return -1;
	} else {
		length[0] = n >> 8, length[1] = n;
		v[0] = (struct iovec){ length, 2 }, v[1] = (struct iovec){ q[0], n };
		m.msg_iovlen = 2;
		check(sendmsg(s, &m, *how == 'f' ? MSG_FASTOPEN : 0), how);
		check(recv(s, in[0], 2, MSG_WAITALL), "recv");
		check(recv(s, in[0], in[0][0] << 8 | in[0][1], MSG_WAITALL), "recv");
	}
	answered();
	return s;
}

NOINLINE void resolving(void)
{
	struct addrinfo *list, hints = { .ai_socktype = SOCK_STREAM };
	asked = now();
	int e = getaddrinfo(name, NULL, &hints, &list);
	answered();
	if (e) {
		fprintf(stderr, "getaddrinfo: %s\n", gai_strerror(e));
		exit(1);
	}
	freeaddrinfo(list);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	name = argv[2];
	server.sin_port = htons(53);
	if (argc > 3 && inet_pton(AF_INET, argv[3], &server.sin_addr) != 1)
		return 2;
	char line[64];
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		longest = 0;
		if (strcmp(argv[1], "libc")) {
			int s = asking(argv[1]);
			if (s >= 0)
				check(close(s), "close");
		} else {
			resolving();
		}
		printf("truth %llu\ndone\n", (unsigned long long)longest);
		fflush(stdout);
	}
	return 0;
}
