// What gdbjit loads: compiled to a file that is not linked, under the name NAME
// for the function that it calls.
static inline __attribute__((always_inline)) int jitted_inner(volatile int *stop) {
	int n = 0;
	while (!*stop)
		n++;
	return n;
}

static __attribute__((noinline)) int jitted_middle(volatile int *stop) {
	// A frame pointer, which identifies the caller, since the code lacks tables.
	__asm__ volatile("" : : "r"(__builtin_frame_address(0)));
	int n = jitted_inner(stop);
	__asm__ volatile("" : "+r"(n));
	return n;
}

int NAME(volatile int *stop);
int NAME(volatile int *stop) {
	int n = jitted_middle(stop);
	__asm__ volatile("" : "+r"(n));
	return n;
}
