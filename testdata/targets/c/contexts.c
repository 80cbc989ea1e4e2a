// contexts MODE: the main function computes in burns() and then gives its thread to
// coroutines with stacks of their own, which sleep in naps() or, the second one, in
// rests(). These never overlap: no stack has two of the three.
//
//	mmap, heap, static  where makecontext(3) has the stacks
//	adjacent            both in one mapping, one right above the other
//	thread              mmap, but a second thread does all of it
//	hand                a switch of its own, and nothing above a coroutine's first function
//	zero                the same with a return address of 0
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { size = 1 << 16 };
static volatile unsigned long sink;
static const char *mode;
static char fixed[2][size] __attribute__((aligned(16)));

static long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) void burns(void) {
	for (long end = now() + 10000000; now() < end;)
		for (int i = 0; i < 10000; i++)
			sink += i;
}

__attribute__((noinline)) void naps(void) {
	usleep(10000);
	sink++;
}

__attribute__((noinline)) void rests(void) {
	usleep(10000);
	sink++;
}

static ucontext_t home, first, second;

static void nap(void) {
	for (;;) {
		naps();
		swapcontext(&first, &home);
		sink++;
	}
}

static void rest(void) {
	for (;;) {
		rests();
		swapcontext(&second, &home);
		sink++;
	}
}

static char *stack(int n) {
	static char *both;
	if (!strcmp(mode, "heap"))
		return malloc(size);
	if (!strcmp(mode, "static"))
		return fixed[n];
	if (!strcmp(mode, "adjacent")) {
		if (!both)
			both = mmap(0, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		return both + n * size;
	}
	return mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *contexts(void *arg) {
	ucontext_t *c[] = {&first, &second};
	void (*f[])(void) = {nap, rest};
	for (int i = 0; i < 2; i++) {
		getcontext(c[i]);
		c[i]->uc_stack.ss_sp = stack(i);
		c[i]->uc_stack.ss_size = size;
		c[i]->uc_link = &home;
		makecontext(c[i], f[i], 0);
	}
	for (;;) {
		burns();
		swapcontext(&home, &first);
		burns();
		swapcontext(&home, &second);
		sink++;
	}
	return arg;
}

#ifdef __x86_64__
// turn keeps what a function must keep on its stack and goes on where *to was left.
void turn(void **from, void *to);
__asm__(".text\n.type turn,@function\nturn:\n"
	"push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
	"mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
	"pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\nret\n.size turn, . - turn\n");

// begin has no tables: what calls a coroutine's function, as boost.context has it.
void begin(void);
__asm__(".text\n.type begin,@function\nbegin:\n"
	"push %rbp\njmp *%rbx\n"
	".globl over\nover:\nud2\n.size begin, . - begin\n");
extern char over;

static void *at[3];

static void handNap(void) {
	for (;;) {
		naps();
		turn(&at[1], at[0]);
		sink++;
	}
}

static void handRest(void) {
	for (;;) {
		rests();
		turn(&at[2], at[0]);
		sink++;
	}
}

static void byHand(int zero) {
	void (*f[])(void) = {handNap, handRest};
	for (int i = 0; i < 2; i++) {
		void **sp = (void **)((char *)malloc(size) + size - 64);
		*--sp = (void *)begin;
		*--sp = zero ? 0 : &over; // rbp, which begin makes the return address
		*--sp = (void *)f[i];     // rbx
		sp -= 4;
		memset(sp, 0, 4 * sizeof *sp);
		at[i + 1] = sp;
	}
	for (;;) {
		burns();
		turn(&at[0], at[1]);
		burns();
		turn(&at[0], at[2]);
		sink++;
	}
}
#endif

int main(int argc, char **argv) {
	mode = argc > 1 ? argv[1] : "mmap";
	printf("ready %d\n", getpid());
	fflush(stdout);
#ifdef __x86_64__
	if (!strcmp(mode, "hand") || !strcmp(mode, "zero"))
		byHand(!strcmp(mode, "zero"));
#endif
	pthread_t t;
	if (!strcmp(mode, "thread"))
		return pthread_create(&t, 0, contexts, 0) || pthread_join(t, 0);
	contexts(0);
}
