// cuts MODE: stacks that cannot be followed to their end.
//
//	hollow  code whose frame has no return address, as that of LuaJIT's interpreter
//	deep    70,000 calls
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long sink;

#ifdef __x86_64__
// The tables of hollow say that its return address is on top of the stack, where a 0 is.
void hollow(void);
__asm__(".text\n.type hollow,@function\nhollow:\n.cfi_startproc\n"
	"sub $8, %rsp\nmovq $0, (%rsp)\n1: pause\njmp 1b\n"
	".cfi_endproc\n.size hollow, . - hollow\n");
#endif

__attribute__((noinline)) void bottom(void) {
	for (;;)
		sink++;
}

__attribute__((noinline)) int dive(int n) {
	if (n == 0)
		bottom();
	return dive(n - 1) + (int)sink;
}

__attribute__((noinline)) void caller(void) {
	// Long enough for the stack to be seen whole.
	for (long i = 0; i < 300000000; i++)
		sink++;
#ifdef __x86_64__
	hollow();
#endif
	sink++;
}

int main(int argc, char **argv) {
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "deep"))
		return dive(70000);
	caller();
}
