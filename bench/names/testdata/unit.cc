// One part of a large C++ program, for its debug information: containers,
// functions and texts, each of them for types of its own. UNIT is its number;
// unit 0 is the main one, which calls the others up to UNITS.
#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct Tag {
    int v = N;
    bool operator<(const Tag &o) const { return v < o.v; }
    bool operator==(const Tag &o) const { return v == o.v; }
};

template <int N> struct std::hash<Tag<N>> {
    size_t operator()(const Tag<N> &t) const { return t.v * 31u; }
};

template <int N> struct Work {
    std::map<Tag<N>, std::vector<std::string>> texts;
    std::unordered_map<Tag<N>, std::list<std::pair<int, Tag<N>>>> lists;
    std::variant<int, std::string, std::vector<Tag<N>>> any;
    std::deque<std::function<int(Tag<N>)>> functions;

    int run(int x) {
        for (int i = 0; i < x; i++) {
            Tag<N> t;
            t.v = i;
            texts[t].push_back(std::to_string(i * N));
            lists[t].emplace_back(i, t);
            functions.push_back([x](Tag<N> q) { return q.v + x; });
        }
        any = std::vector<Tag<N>>(x);
        std::ostringstream o;
        for (auto &[k, v] : texts) {
            std::sort(v.begin(), v.end());
            o << k.v << v.front();
        }
        int s = std::accumulate(lists.begin(), lists.end(), 0, [](int a, auto &p) { return a + p.first.v + (int)p.second.size(); });
        s += std::visit([](auto &v) -> int {
            if constexpr (std::is_same_v<std::decay_t<decltype(v)>, int>)
                return v;
            else
                return (int)v.size();
        }, any);
        for (auto &f : functions)
            s += f(Tag<N>{});
        std::set<std::tuple<int, std::string, Tag<N>>> all;
        for (auto &[k, v] : texts)
            all.emplace(k.v, v[0], k);
        std::stable_sort(functions.begin(), functions.end(), [](auto &, auto &) { return false; });
        return s + (int)o.str().size() + (int)all.size();
    }
};

template <int... N> int works(int x, std::integer_sequence<int, N...>) { return (Work<UNIT * 100 + N>().run(x) + ... + 0); }

template <int N> int unit(int x);
template <> int unit<UNIT>(int x) { return works(x, std::make_integer_sequence<int, WORKS>()); }

#if UNIT == 0
template <int... N> int units(int x, std::integer_sequence<int, N...>) { return (unit<N>(x) + ... + 0); }
int main() { std::cout << units(3, std::make_integer_sequence<int, UNITS>()) << "\n"; }
#endif
