// A chain of calls that is known: leaf and middle are inlined into outer. The
// label inside leaf is where the tests look; the marks name its lines.
#include "chain.h"

volatile int sink;

static inline __attribute__((always_inline)) void leaf(int n)
{
	sink = n;
	__asm__ volatile(".globl probe\nprobe: nop"); // mark:leaf
	sink = n + 1;
}

static inline __attribute__((always_inline)) void middle(int n)
{
	sink = n * 3;
	leaf(n + 2); // mark:middle
	sink = n * 5;
}

__attribute__((noinline)) void outer(int n) // mark:start
{
	sink = n;
	middle(n + 1); // mark:outer
	in_header(n);
	sink = n + 7;
}

int main(int argc, char **argv)
{
	(void)argv;
	outer(argc);
	return 0;
}
