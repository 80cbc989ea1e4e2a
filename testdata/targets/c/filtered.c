/*
 * filtered: a process whose seccomp filter is against being copied.
 *
 *   filtered none|allow|errno|trap|kill|wait
 *
 * has a thread that is blocked in a futex and one that spins, all under a filter that does
 * this to clone ("wait": lets it pass, and lets wait4 fail). Prints "ready". At a line of
 * input it prints "traps N": how many SIGSYS came. At the end of its input it leaves with
 * status 17.
 */
#include "../include/prog.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

static volatile int traps;
static volatile long x;

static void on_sys(int sig) { (void)sig; traps = traps + 1; }

static void *wait_for_ever(void *p) {
	pthread_mutex_lock(p);
	return 0;
}

static void *spin(void *p) {
	(void)p;
	for (;;)
		x++;
	return 0;
}

static void filter(const char *what) {
	int nr = SYS_clone;
	uint32_t action = SECCOMP_RET_ALLOW;
	if (!strcmp(what, "errno"))
		action = SECCOMP_RET_ERRNO | EPERM;
	else if (!strcmp(what, "trap"))
		action = SECCOMP_RET_TRAP;
	else if (!strcmp(what, "kill"))
		action = SECCOMP_RET_KILL_PROCESS;
	else if (!strcmp(what, "wait"))
		action = SECCOMP_RET_ERRNO | EPERM, nr = SYS_wait4;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof code / sizeof *code, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		die("PR_SET_NO_NEW_PRIVS");
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog))
		die("seccomp");
}

int main(int argc, char **argv) {
	pthread_t t;
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	struct sigaction sa = {.sa_handler = on_sys};
	sigaction(SIGSYS, &sa, 0);
	pthread_mutex_lock(&m);
	pthread_create(&t, 0, wait_for_ever, &m);
	pthread_create(&t, 0, spin, 0);
	if (argc > 1 && strcmp(argv[1], "none"))
		filter(argv[1]);
	printf("ready\n");
	fflush(stdout);
	for (int c; (c = getchar()) != EOF;)
		if (c == '\n') {
			printf("traps %d\n", traps);
			fflush(stdout);
		}
	_exit(17);
}
