// A library with a function that is called by latecalls and laterlinked.
static volatile unsigned long sink;

__attribute__((noipa)) int later(int n) {
	for (int i = 0; i < 1000; i++)
		sink += i;
	return n;
}
