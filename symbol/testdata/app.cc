// Templates, lambdas, an anonymous namespace and much of the library inlined.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace app {
namespace {
static int twice(int x) { return x * 2 + 1; }

struct Node {
	std::map<std::string, int> m;
	int get(const std::string &k) const
	{
		auto it = m.find(k);
		return it == m.end() ? 0 : it->second;
	}
};

template <class T> T sum(const std::vector<T> &v)
{
	T s{};
	for (auto &x : v)
		s += x;
	return s;
}
} // namespace

class Engine {
public:
	explicit Engine(int n) : n_(n) {}
	virtual ~Engine() {}
	virtual int run(std::vector<std::string> v)
	{
		std::sort(v.begin(), v.end(), [](auto &a, auto &b) { return a.size() < b.size(); });
		Node n;
		for (auto &s : v)
			n.m[s] += twice(s.size());
		int t = 0;
		for (auto &s : v)
			t += n.get(s);
		return t + n_;
	}
	int n_;
};
} // namespace app

int main(int c, char **v)
{
	std::vector<std::string> a(v, v + c);
	app::Engine e(c);
	std::regex re("a+(b|c)*d");
	std::smatch m;
	std::string s = "xaabcd";
	std::cout << std::regex_search(s, m, re) << e.run(a) << app::sum(std::vector<double>{1, 2, 3}) << "\n";
	std::ostringstream o;
	for (auto &x : m)
		o << x;
	std::cout << o.str();
}
