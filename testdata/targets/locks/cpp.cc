// std::mutex and its like: one thread holds, one waits. Usage: cpp KIND.
// Prints {"kind":…,"lock":"0x…","holder":TID,"waiters":[TID]}, waits for a
// line on standard input, lets go and ends.
#include "prog.h"
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>

std::mutex the_mutex;
std::recursive_mutex the_recursive;
std::timed_mutex the_timed;
std::shared_mutex the_shared;
std::condition_variable the_condition;
static std::mutex beside;

static std::atomic<int> holder, waiter;
static std::atomic<bool> release;

template <typename L> FRAME void take(L &l) { l.lock(); }

template <typename L> static void hold(L &l) {
	l.lock();
	holder = prog_tid();
	while (!release)
		usleep(1000);
	l.unlock();
}

template <typename L, typename W> static int run(const char *kind, L &l, W wait) {
	std::thread h([&] { hold(l); });
	while (!holder)
		std::this_thread::yield();
	std::thread w([&] {
		waiter = prog_tid();
		wait();
	});
	while (!waiter)
		std::this_thread::yield();
	printf("{\"kind\":\"%s\",\"lock\":\"%p\",\"holder\":%d,\"waiters\":[%d]}\n", kind, (void *)&l, holder.load(), waiter.load());
	fflush(stdout);
	prog_await();
	release = true;
	h.join();
	w.join();
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 2)
		return 2;
	prog_ready(0);
	std::string kind = argv[1];
	if (kind == "mutex")
		return run(argv[1], the_mutex, [] { take(the_mutex); });
	if (kind == "recursive_mutex")
		return run(argv[1], the_recursive, [] { take(the_recursive); });
	if (kind == "timed_mutex")
		return run(argv[1], the_timed, [] {
			if (!the_timed.try_lock_for(std::chrono::hours(1)))
				abort();
		});
	if (kind == "shared_mutex-read")
		return run(argv[1], the_shared, [] { the_shared.lock_shared(); });
	if (kind == "shared_mutex-write")
		return run(argv[1], the_shared, [] { take(the_shared); });
	if (kind == "condition_variable") {
		bool done = false;
		std::thread w([&] {
			std::unique_lock<std::mutex> l(beside);
			waiter = prog_tid();
			the_condition.wait(l, [&] { return done; });
		});
		while (!waiter)
			std::this_thread::yield();
		printf("{\"kind\":\"%s\",\"lock\":\"%p\",\"mutex\":\"%p\",\"holder\":0,\"waiters\":[%d]}\n", argv[1], (void *)&the_condition,
		       (void *)&beside, waiter.load());
		fflush(stdout);
		prog_await();
		{
			std::lock_guard<std::mutex> l(beside);
			done = true;
		}
		the_condition.notify_all();
		w.join();
		return 0;
	}
	return 2;
}
