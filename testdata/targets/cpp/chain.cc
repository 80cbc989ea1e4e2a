// The chain in C++: exceptions that pass through frames, templates, lambdas,
// virtual calls, and workers of std::thread.
#include <cstddef>

// A call may end by an exception: the caller catches it and goes on.
struct run;
namespace chain {
struct thrown {
	int frames;
};
} // namespace chain
#define CHAIN_CALL(r, child) \
	try { \
		(r)->table[(r)->script.nodes[child].func](r, child); \
	} catch (const chain::thrown &) { \
	}
#include "chain.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace chain {

CHAIN_FUNCTION(alpha, 0, )

// A lambda that is called as one.
FRAME void beta(run *r, uint32_t i) {
	auto body = [r](uint32_t node) FRAME { CHAIN_BODY(r, node, 1, CHAIN_NONE); };
	body(i);
	__asm__ volatile("" ::: "memory");
}

// Throws through two frames that have something to destroy, to whoever called gamma.
FRAME void throw_through(int frames) {
	std::string owned(100, 'x');
	__asm__ volatile("" : : "r"(owned.data()) : "memory");
	if (frames == 0)
		throw thrown{frames};
	throw_through(frames - 1);
	__asm__ volatile("" : : "r"(owned.data()) : "memory");
}

FRAME void gamma(run *r, uint32_t i) {
	std::unique_ptr<std::string> owned(new std::string("gamma"));
	CHAIN_BODY(r, i, 2, CHAIN_NONE);
	throw_through(1);
	__asm__ volatile("" : : "r"(owned.get()) : "memory");
}

// Virtual calls: the caller sees the base alone.
struct shape_base {
	virtual ~shape_base() {}
	virtual void draw(run *r, uint32_t i) = 0;
};
struct circle : shape_base {
	FRAME void draw(run *r, uint32_t i) override { CHAIN_BODY(r, i, 3, CHAIN_NONE); }
};
struct square : shape_base {
	int side = 4;
	FRAME void draw(run *r, uint32_t i) override { CHAIN_BODY(r, i, 4, CHAIN_NONE); }
};

FRAME shape_base *choose(bool round) {
	static circle c;
	static square s;
	return round ? static_cast<shape_base *>(&c) : &s;
}

FRAME void delta(run *r, uint32_t i) {
	choose(true)->draw(r, i);
	__asm__ volatile("" ::: "memory");
}

FRAME void epsilon(run *r, uint32_t i) {
	choose(false)->draw(r, i);
	__asm__ volatile("" ::: "memory");
}

template <int N> FRAME void zeta(run *r, uint32_t i) {
	CHAIN_ROOM(char, N);
	CHAIN_BODY(r, i, 5, CHAIN_NONE);
}

template <typename T> FRAME void eta(run *r, uint32_t i) {
	T values(3);
	__asm__ volatile("" : : "r"(values.data()) : "memory");
	CHAIN_BODY(r, i, 6, CHAIN_NONE);
}

template <typename T> struct box {
	T value;
	FRAME static void theta(run *r, uint32_t i) { CHAIN_BODY(r, i, 7, CHAIN_NONE); }
};

CHAIN_FUNCTION(root, SCRIPT_ROOT, )

} // namespace chain

static const struct shape shapes[CHAIN_SHAPES] = {
    {{"chain::alpha"}},
    {{"chain::beta", "chain::beta(run*, unsigned int)::{lambda(unsigned int)#1}::operator()"}},
    {{"chain::gamma"}},
    {{"chain::delta", "chain::circle::draw"}},
    {{"chain::epsilon", "chain::square::draw"}},
    {{"chain::zeta<48>"}},
    {{"chain::eta<std::vector<int, std::allocator<int> > >"}},
    {{"chain::box<double>::theta"}},
    {{"chain::root"}},
};

int main(int argc, char **argv) {
	chain_options o = chain_parse(argc, argv);
	if (o.deep || o.signals || o.library)
		chain_usage(argv[0]);
	std::vector<run> runs(o.threads + 1);
	chain_fn *table[SCRIPT_FUNCS] = {chain::alpha,   chain::beta,     chain::gamma,                 chain::delta,
	                                 chain::epsilon, chain::zeta<48>, chain::eta<std::vector<int> >, chain::box<double>::theta};
	for (size_t k = 0; k < runs.size(); k++) {
		chain_prepare(&runs[k], &o, k);
		memcpy(runs[k].table, table, sizeof table);
		runs[k].root = chain::root;
		runs[k].shapes = shapes;
	}
	pthread_barrier_t barrier;
	pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(runs.size()));
	std::vector<std::thread> workers;
	for (size_t k = 1; k < runs.size(); k++)
		workers.emplace_back([&runs, &barrier, k] {
			pthread_setname_np(pthread_self(), ("worker-" + std::to_string(k - 1)).c_str());
			pthread_barrier_wait(&barrier);
			pthread_barrier_wait(&barrier);
			chain_start(&runs[k]);
		});
	pthread_barrier_wait(&barrier); // every worker has its name
	prog_ready(o.wait_go);
	pthread_barrier_wait(&barrier);
	chain_start(&runs[0]);
	for (auto &w : workers)
		w.join();
	chain_finish(&o, runs.data(), runs.size());
	return 0;
}
