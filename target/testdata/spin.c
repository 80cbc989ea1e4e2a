/* spin: threads that run and never sleep.
 *   spin regs     loads known values into registers and on its stack, says where, and spins
 *   spin deep     one thread that counts 30 frames deep; says its TID; ends with its input
 *   spin N        N threads that count; says their TIDs; ends with its input
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void regs(void)
{
	/* 4 KiB of known bytes right above the stack pointer. */
	_Alignas(16) unsigned char block[4096];
	for (int i = 0; i < 4096; i++)
		block[i] = (unsigned char)(i * 7 + 3);
	printf("%p\n", (void *)block);
	fflush(stdout);
#ifdef __x86_64__
	__asm__ volatile(
		"mov %0, %%rsp\n"
		"mov $0x1111111111111100, %%rax\n"
		"mov $0x1111111111111101, %%rdx\n"
		"mov $0x1111111111111102, %%rcx\n"
		"mov $0x1111111111111103, %%rbx\n"
		"mov $0x1111111111111104, %%rsi\n"
		"mov $0x1111111111111105, %%rdi\n"
		"mov $0x1111111111111106, %%rbp\n"
		"mov $0x1111111111111108, %%r8\n"
		"mov $0x1111111111111109, %%r9\n"
		"mov $0x111111111111110a, %%r10\n"
		"mov $0x111111111111110b, %%r11\n"
		"mov $0x111111111111110c, %%r12\n"
		"mov $0x111111111111110d, %%r13\n"
		"mov $0x111111111111110e, %%r14\n"
		"mov $0x111111111111110f, %%r15\n"
		".globl spin_here\n"
		"spin_here: jmp spin_here\n" ::"r"(block) : "memory");
#else
	__asm__ volatile(
		"mov sp, %0\n"
		"mov x19, #0x1113\n"
		"mov x28, #0x111c\n"
		"spin_here: b spin_here\n" ::"r"(block) : "memory");
#endif
}

static int frames; /* between count and what calls it */
static volatile int enough;

static void *count(void *p)
{
	volatile uint64_t x = 0;
	*(pid_t *)p = (pid_t)syscall(SYS_gettid);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n((pid_t *)p + 1, 1, __ATOMIC_SEQ_CST);
	while (!enough)
		x++;
	return 0;
}

/* Each call needs its frame: what it returns is looked at. */
static __attribute__((noinline)) void *deep(void *p, int n)
{
	void *volatile r = n > 0 ? deep(p, n - 1) : count(p);
	return r;
}

static void *down(void *p)
{
	return deep(p, frames);
}

int main(int argc, char **argv)
{
	static pid_t tids[64][2];
	if (argc > 1 && strcmp(argv[1], "regs") == 0) {
		regs();
		return 1;
	}
	int n = argc > 1 ? atoi(argv[1]) : 1;
	if (argc > 1 && strcmp(argv[1], "deep") == 0) {
		n = 1;
		frames = 25; /* and count, down, and two of the C library's */
	}
	for (int i = 0; i < n && i < 64; i++) {
		pthread_t t;
		if (pthread_create(&t, 0, frames ? down : count, tids[i]))
			return 1;
		while (!__atomic_load_n(&tids[i][1], __ATOMIC_SEQ_CST))
			usleep(100);
		printf("%d\n", tids[i][0]);
	}
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
