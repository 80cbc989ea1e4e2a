// throwing: a function that every fifth call leaves by an exception, through two
// frames of its own library-made kind.
//
//   throwing N
//
// prints "ready PID", waits for a line of input, makes N calls, prints "truth CALLS
// RETURNED LEFT" and "done", and waits for the next line or the end of its input.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink;

namespace shop {
struct order {
	NOINLINE static long price(long i)
	{
		if (i % 5 == 4)
			throw std::runtime_error("no price");
		sink = sink + i;
		return sink;
	}
	NOINLINE static long total(long i)
	{
		long sum = 0;
		sum += price(i);
		sink = sink ^ sum;
		return sum + 1;
	}
};
}

int main(int argc, char **argv)
{
	char line[64];
	if (argc != 2)
		return 2;
	std::printf("ready %d\n", getpid());
	std::fflush(stdout);
	while (std::fgets(line, sizeof line, stdin)) {
		long n = std::atol(argv[1]), returned = 0, left = 0;
		for (long i = 0; i < n; i++) {
			try {
				shop::order::total(i);
				returned++;
			} catch (const std::exception &) {
				left++;
			}
		}
		std::printf("truth %ld %ld %ld\ndone\n", n, returned, left);
		std::fflush(stdout);
	}
}
