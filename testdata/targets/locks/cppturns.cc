// Threads that take turns with a lock of C++'s standard library, and log
// when. Usage: cppturns KIND THREADS SECONDS MICROSECONDS; KIND is mutex,
// recursive_mutex, timed_mutex, shared_mutex (all write),
// shared_mutex-mixed (every second thread reads) or condition_variable (the
// first thread gives). The output is that of turns.h.
#include "turns.h"
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

std::mutex the_mutex;
std::recursive_mutex the_recursive;
std::timed_mutex the_timed;
std::shared_mutex the_shared;
std::condition_variable the_condition;
static int tokens;

static std::string kind;
static int workers;
static uint64_t hold_us;

template <typename L> FRAME void take(L &l) { l.lock(); }

template <> FRAME void take(std::timed_mutex &l) {
	if (!l.try_lock_for(std::chrono::hours(1)))
		abort();
}

template <typename L> static void exclusive(L &l, int tid, unsigned seed) {
	while (turns_on()) {
		uint64_t wanted = prog_now();
		take(l);
		uint64_t got = prog_now();
		turns_work(&seed, hold_us);
		uint64_t left = prog_now();
		l.unlock();
		turns_waited(tid, &l, wanted, got);
		turns_held(tid, &l, got, left);
		turns_sleep(1 + (uint64_t)rand_r(&seed) % hold_us);
	}
}

static void reads(int tid, unsigned seed) {
	while (turns_on()) {
		uint64_t wanted = prog_now();
		the_shared.lock_shared();
		uint64_t got = prog_now();
		turns_work(&seed, hold_us);
		uint64_t left = prog_now();
		the_shared.unlock_shared();
		turns_waited(tid, &the_shared, wanted, got);
		turns_held(0, &the_shared, got, left);
		turns_sleep(1 + (uint64_t)rand_r(&seed) % hold_us);
	}
}

static void gives(unsigned seed) {
	while (turns_on()) {
		turns_work(&seed, hold_us);
		std::lock_guard<std::mutex> l(the_mutex);
		tokens = workers - 1;
		the_condition.notify_all();
	}
	std::lock_guard<std::mutex> l(the_mutex);
	tokens = INT32_MAX / 2;
	the_condition.notify_all();
}

static void takes(int tid) {
	while (turns_on()) {
		std::unique_lock<std::mutex> l(the_mutex);
		while (tokens == 0) {
			uint64_t wanted = prog_now();
			the_condition.wait(l);
			turns_waited(tid, &the_condition, wanted, prog_now());
		}
		tokens--;
	}
}

static void work(int i) {
	int tid = turns_enter(i);
	unsigned seed = (unsigned)i + 1;
	if (kind == "mutex")
		exclusive(the_mutex, tid, seed);
	else if (kind == "recursive_mutex")
		exclusive(the_recursive, tid, seed);
	else if (kind == "timed_mutex")
		exclusive(the_timed, tid, seed);
	else if (kind == "shared_mutex-mixed" && i % 2)
		reads(tid, seed);
	else if (kind == "shared_mutex" || kind == "shared_mutex-mixed")
		exclusive(the_shared, tid, seed);
	else if (i == 0)
		gives(seed);
	else
		takes(tid);
}

int main(int argc, char **argv) {
	if (argc != 5)
		return 2;
	kind = argv[1];
	workers = (int)prog_number(argv[2]);
	hold_us = prog_number(argv[4]);
	if (workers < 2 || workers > TURNS_THREADS || hold_us == 0)
		return 2;
	prog_ready(0);
	turns_init();
	std::vector<std::thread> all;
	for (int i = 0; i < workers; i++)
		all.emplace_back(work, i);
	const void *lock = &the_condition;
	if (kind == "mutex")
		lock = &the_mutex;
	else if (kind == "recursive_mutex")
		lock = &the_recursive;
	else if (kind == "timed_mutex")
		lock = &the_timed;
	else if (kind.compare(0, 12, "shared_mutex") == 0)
		lock = &the_shared;
	turns_start(lock, workers, workers, prog_number(argv[3]));
	for (auto &t : all)
		t.join();
	turns_report();
	return 0;
}
